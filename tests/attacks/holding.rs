//! Commands that hold on to what the service wants.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Service, have, workspace};

#[test]
fn taking_a_lease_on_a_file_that_is_read() {
    let service = Service::start();
    let tree = workspace("u", "a");
    if !have("python3") {
        return;
    }
    let script = "import fcntl, os, signal, time\n\
                  signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
                  f = os.open('leased', os.O_CREAT | os.O_RDWR)\n\
                  fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
                  os.mkdir('ready')\n\
                  while os.path.exists('ready'): time.sleep(0.01)";
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            let body = json!({ "command": "python3", "args": ["-c", script] });
            service.client.post_json(format!("{tree}/exec"), &body).ok()
        });
        let begun = Instant::now();
        while service.client.get(format!("{tree}/stat?path=ready")).status != 200 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the command never began");
            thread::sleep(Duration::from_millis(10));
        }
        service.client.get(format!("{tree}/raw/leased")).refused(409, "conflict");
        service.client.get(format!("{tree}/content?path=leased")).refused(409, "conflict");
        service.client.put(format!("{tree}/raw/leased"), "new").ok();
        service.client.delete(format!("{tree}/raw/ready?recursive=true")).ok();
        assert_eq!(run.join().unwrap()["data"]["exit_code"], 0);
    });
    assert_eq!(service.client.get(format!("{tree}/raw/leased")).bytes(200), b"new");
}

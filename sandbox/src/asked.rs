//! [`Asked`]: what a caller asks of a command that runs. An order is carried out before the input that was sent after it.

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::live::{Input, Order};

/// What a terminal reads as the end of what was typed (`VEOF`, termios(3)).
const END_OF_TYPING: u8 = 4;

/// One thing that a caller asks.
#[derive(Debug)]
pub(crate) enum Ask {
    Order(Order),
    /// Input; `None`: no more comes.
    Input(Option<Input>),
}

/// How orders are carried out.
pub(crate) trait Obey: Sync {
    /// Does nothing when the command has ended.
    fn carry_out(&self, order: Order) -> impl Future<Output = ()> + Send;
}

/// The command's ends of [`LiveRun::input`](crate::LiveRun::input) and [`LiveRun::orders`](crate::LiveRun::orders).
#[derive(Debug)]
pub(crate) struct Asked {
    inputs: mpsc::Receiver<Input>,
    orders: mpsc::Receiver<Order>,
    has_orders: bool,
    /// Input that has come, until the orders that were sent before it are given out.
    came: Option<Option<Input>>,
}

impl Asked {
    /// Without `takes_input`, callers find their input closed.
    pub(crate) fn new(
        mut inputs: mpsc::Receiver<Input>,
        orders: mpsc::Receiver<Order>,
        takes_input: bool,
    ) -> Self {
        if !takes_input {
            inputs.close();
        }
        Self { inputs, orders, has_orders: true, came: None }
    }

    /// Takes no more input from the caller.
    pub(crate) fn close(&mut self) {
        self.inputs.close();
    }

    /// Waits for the next order, or for the next input as well. Given up, it loses nothing.
    pub(crate) async fn next(&mut self, takes_input: bool) -> Ask {
        loop {
            // What was sent before the input that came is here by now.
            if let Ok(order) = self.orders.try_recv() {
                return Ask::Order(order);
            }
            if takes_input && let Some(came) = self.came.take() {
                return Ask::Input(came);
            }
            tokio::select! {
                order = self.orders.recv(), if self.has_orders => match order {
                    Some(order) => return Ask::Order(order),
                    None => self.has_orders = false,
                },
                input = self.inputs.recv(), if takes_input => self.came = Some(input),
                else => std::future::pending().await,
            }
        }
    }

    /// Writes `first` and what the caller sends to standard input, closes that at its end unless it is a terminal, and carries out
    /// orders all the time. Does not return.
    pub(crate) async fn serve(
        mut self,
        first: Bytes,
        input: Option<impl AsyncWrite + Unpin>,
        is_terminal: bool,
        obeying: &impl Obey,
    ) {
        // As long as a terminal has a command, it stays open.
        let mut _terminal = None;
        if let Some(mut input) = input {
            // A command that closes standard input does not want the rest.
            let _gone = self.pass(first, &mut input, is_terminal, obeying).await;
            if is_terminal {
                _terminal = Some(input);
            } else {
                let _gone = self.while_obeying(input.shutdown(), obeying).await;
            }
        }
        self.close();
        self.while_obeying(std::future::pending::<()>(), obeying).await;
    }

    async fn pass(
        &mut self,
        first: Bytes,
        input: &mut (impl AsyncWrite + Unpin),
        is_terminal: bool,
        obeying: &impl Obey,
    ) -> std::io::Result<()> {
        let mut bytes = first;
        loop {
            let write = async {
                input.write_all(&bytes).await?;
                input.flush().await
            };
            self.while_obeying(write, obeying).await?;
            bytes = loop {
                match self.next(true).await {
                    Ask::Order(order) => obeying.carry_out(order).await,
                    Ask::Input(Some(Input::Bytes(bytes))) => break bytes,
                    Ask::Input(Some(Input::End)) if is_terminal => {
                        break Bytes::from_static(&[END_OF_TYPING]);
                    }
                    Ask::Input(Some(Input::End) | None) => return Ok(()),
                }
            };
        }
    }

    async fn while_obeying<T>(&mut self, done: impl Future<Output = T>, obeying: &impl Obey) -> T {
        let mut done = std::pin::pin!(done);
        loop {
            tokio::select! {
                done = &mut done => return done,
                ask = self.next(false) => if let Ask::Order(order) = ask {
                    obeying.carry_out(order).await;
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::live::{Signal, WindowSize};

    fn asked() -> (mpsc::Sender<Input>, mpsc::Sender<Order>, Asked) {
        let ((input, inputs), (order, orders)) = (mpsc::channel(4), mpsc::channel(4));
        (input, order, Asked::new(inputs, orders, true))
    }

    fn size(rows: u16) -> Order {
        Order::Resize(WindowSize { rows, cols: 80 })
    }

    struct Kept(Mutex<Vec<Order>>);

    impl Obey for Kept {
        async fn carry_out(&self, order: Order) {
            self.0.lock().push(order);
        }
    }

    #[tokio::test]
    async fn an_order_comes_before_the_input_behind_it() {
        let (input, order, mut asked) = asked();
        for rows in 0..200 {
            // It waits for the input alone, and is given up when that is on its way.
            let waited = tokio::time::timeout(std::time::Duration::ZERO, asked.next(rows % 2 == 0)).await;
            assert!(waited.is_err());
            order.send(size(rows)).await.unwrap();
            input.send(Input::End).await.unwrap();
            assert!(matches!(asked.next(true).await, Ask::Order(first) if first == size(rows)));
            assert!(matches!(asked.next(true).await, Ask::Input(Some(Input::End))));
        }
        drop(input);
        assert!(matches!(asked.next(true).await, Ask::Input(None)));
    }

    #[tokio::test]
    async fn an_order_passes_input_that_the_command_does_not_read() {
        let (input, order, asked) = asked();
        let (ours, mut theirs) = duplex(2);
        let kept = Kept(Mutex::default());
        let mut served = std::pin::pin!(asked.serve(Bytes::from_static(b"first "), Some(ours), false, &kept));
        let ask = async {
            input.send(Input::Bytes(Bytes::from_static(b"then"))).await.unwrap();
            order.send(Order::Signal(Signal::Term)).await.unwrap();
            while kept.0.lock().is_empty() {
                tokio::task::yield_now().await;
            }
            input.send(Input::End).await.unwrap();
            let mut read = String::new();
            theirs.read_to_string(&mut read).await.unwrap();
            assert_eq!(read, "first then");
            // It takes no more input, and obeys.
            input.closed().await;
            order.send(size(1)).await.unwrap();
            while kept.0.lock().len() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = &mut served => unreachable!("it returned"),
            () = ask => {}
        }
        assert_eq!(*kept.0.lock(), [Order::Signal(Signal::Term), size(1)]);
    }
}

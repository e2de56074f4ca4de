/* Linked into static programs: names of hosts and users are looked up in files and DNS alone.
 *
 * A static glibc has only these two in it. For another service of nsswitch.conf it loads a library of the host, with the host's glibc, and
 * where that has another version the program crashes: one built on Debian 12 dies of SIGFPE on Debian 13 with libnss-myhostname. */

extern int __nss_configure_lookup(const char *database, const char *services);

__attribute__((constructor)) static void look_in_files_and_dns(void)
{
    __nss_configure_lookup("hosts", "files dns");
    __nss_configure_lookup("passwd", "files");
    __nss_configure_lookup("group", "files");
    __nss_configure_lookup("services", "files");
}

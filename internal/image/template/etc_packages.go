package template

// etcOfPackage lists files of /etc in a package, without which its programs do not start or behave
// differently.
type etcOfPackage struct {
	pkg   string   // Debian's name
	paths []string // patterns below /etc
}

// packageEtc lists the files of /etc that are shown in addition to etcDirs and etcFiles, from the
// packages of Debian 12. A file is shown only if its content is exactly the package's, so that
// changes of this machine's administrator are never shown. Files for keys are left out, although a
// package contains them (chromium.d/apikeys), and so are files that not every user may read
// (redis.conf).
var packageEtc = []etcOfPackage{
	{"adduser", []string{"adduser.conf", "deluser.conf"}},
	{"apache2", []string{
		"apache2/apache2.conf", "apache2/envvars", "apache2/magic", "apache2/ports.conf", "apache2/conf-available/*.conf", "apache2/conf-enabled/*.conf",
		"apache2/mods-available/*.conf", "apache2/mods-available/*.load", "apache2/mods-enabled/*.conf", "apache2/mods-enabled/*.load",
		"apache2/sites-available/000-default.conf", "apache2/sites-enabled/000-default.conf",
	}},
	{"chromium", []string{"chromium/master_preferences", "chromium.d/README", "chromium.d/default-flags", "chromium.d/dev-shm", "chromium.d/extensions"}},
	{"e2fsprogs", []string{"mke2fs.conf"}},
	{"emacs-common", []string{"emacs/site-start.d/00debian.el"}},
	{"gdb", []string{"gdb/gdbinit"}},
	{"haproxy", []string{"haproxy/haproxy.cfg", "haproxy/errors/*.http"}},
	{"iproute2", []string{"iproute2/*", "iproute2/rt_*.d/README"}},
	{"javascript-common", []string{"apache2/conf-available/javascript-common.conf", "lighttpd/conf-available/90-javascript-alias.conf"}},
	{"libattr1", []string{"xattr.conf"}},
	{"libc-bin", []string{"bindresvport.blacklist", "gai.conf"}},
	{"libdebuginfod-common", []string{"debuginfod/elfutils.urls"}},
	{"libgtk2.0-common", []string{"gtk-2.0/im-multipress.conf"}},
	{"libgtk-3-common", []string{"gtk-3.0/im-multipress.conf"}},
	{"libldap-common", []string{"ldap/ldap.conf"}},
	{"libmagic1", []string{"magic.mime"}},
	{"libnl-3-200", []string{"libnl-3/classid", "libnl-3/pktloc"}},
	{"libpulse0", []string{"pulse/client.conf"}},
	{"libreoffice-common", []string{"libreoffice/psprint.conf", "libreoffice/soffice.sh", "libreoffice/sofficerc"}},
	{"libtirpc-common", []string{"netconfig"}},
	{"lighttpd", []string{"lighttpd/lighttpd.conf", "lighttpd/conf-available/*.conf", "lighttpd/conf-enabled/*.conf"}},
	{"login", []string{"login.defs"}},
	{"lynx-common", []string{"lynx/lynx.cfg", "lynx/lynx.lss"}},
	{"man-db", []string{"manpath.config"}},
	{"mercurial-common", []string{"mercurial/hgrc", "mercurial/hgrc.d/*.rc"}},
	{"mpv", []string{"mpv/encoding-profiles.conf"}},
	{"nano", []string{"nanorc"}},
	{"nginx-common", []string{
		"nginx/nginx.conf", "nginx/mime.types", "nginx/fastcgi.conf", "nginx/fastcgi_params", "nginx/koi-utf", "nginx/koi-win", "nginx/proxy_params",
		"nginx/scgi_params", "nginx/uwsgi_params", "nginx/win-utf", "nginx/sites-available/default", "nginx/sites-enabled/default",
		"nginx/snippets/fastcgi-php.conf", "nginx/modules-enabled/*.conf",
	}},
	{"octave-common", []string{"octaverc"}},
	{"postgresql-client-common", []string{"postgresql-common/supported_versions", "postgresql-common/user_clusters"}},
	{"screen", []string{"screenrc"}},
	{"subversion", []string{"subversion/config", "subversion/servers"}},
	{"vim-common", []string{"vim/vimrc"}},
	{"w3m", []string{"w3m/config", "w3m/mailcap"}},
	{"wget", []string{"wgetrc"}},
	{"x11-common", []string{"X11/rgb.txt", "X11/Xresources/x11-common", "X11/Xsession.options"}},
	{"x11-utils", []string{"X11/app-defaults/*"}},
	{"xdg-user-dirs", []string{"xdg/user-dirs.conf", "xdg/user-dirs.defaults"}},
	{"xml-core", []string{"sgml/xml-core.cat"}},
}

// neverNames are names of files and directories of /etc that no sandbox sees, regardless of
// settings: accounts, keys, credentials, and the identity of this machine.
var neverNames = []string{
	"*shadow*", "passwd*", "sudoers*", "opasswd", "machine-id", "fstab", "crypttab", "environment", "*.key", "*.pem", "*.p12", "*.pfx", "*.jks",
	"*.keytab", "*.kdbx", "*.ovpn", "*htpasswd*", "*secret*", "*password*", "*credential*", "*apikey*", "*api_key*", "*token*", "ssh_host_*", "private",
	".netrc", "*.creds", "id_rsa*", "id_ecdsa*", "id_ed25519*", "debian.cnf",
	"wireguard", "openvpn", "NetworkManager", "ppp", "ipsec*", "swanctl", "letsencrypt", "crannog", "kubernetes", "docker", "rancher", "cloud", "vault*",
	"consul*", "wpa_supplicant", "exim4", "postfix", "dovecot", "samba", "krb5*", "ipa", "sssd", "pve", "bind", "rndc*",
}

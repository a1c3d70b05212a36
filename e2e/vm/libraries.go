package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// requiredTools must be on the host; e2e/install.sh vm brings them. Names that differ only in what they are linked to
// (iptables-nft-save ...) are listed so that the links arrive in the guest as well.
var requiredTools = strings.Fields(`
	bash sh basename cat chmod chown chroot comm cp cut date dd df dirname du echo env expr false head hostname id install join
	kill ln ls md5sum mkdir mkfifo mknod mktemp mv nl nproc od paste printenv printf pwd readlink realpath rm rmdir seq
	sha256sum shuf sleep sort split stat stdbuf stty sync tac tail tee test timeout touch tr true truncate tty uname uniq wc
	which whoami xargs yes
	awk egrep fgrep find grep sed diff cmp tar gzip
	dmesg flock mount mountpoint nsenter prlimit setpriv setsid umount unshare
	ps pgrep pkill pidof sysctl free
	ip ss bridge tc nstat
	iptables-nft iptables-nft-save iptables-nft-restore ip6tables-nft ip6tables-nft-save ip6tables-nft-restore
	iptables-legacy iptables-legacy-save iptables-legacy-restore ip6tables-legacy ip6tables-legacy-save ip6tables-legacy-restore
	xtables-nft-multi xtables-legacy-multi
	ipset ipvsadm keepalived nft conntrack modprobe insmod rmmod lsmod depmod modinfo
	curl strace ping getent crun`)

// optionalTools come along when the host has them.
var optionalTools = strings.Fields(`gawk mawk jq less nc socat tcpdump ethtool arping hping3 hexdump column time iperf3 arptables ebtables
	iptables-translate xtables-monitor getcap capsh lsof`)

// supportFiles are read by those tools without being linked to them.
var supportFiles = []string{
	"/etc/ethertypes", "/etc/host.conf", "/etc/iproute2", "/etc/ld.so.cache", "/etc/ld.so.conf",
	"/etc/ld.so.conf.d", "/etc/networks", "/etc/nsswitch.conf", "/etc/protocols", "/etc/rpc", "/etc/services",
	"/etc/xtables", "/usr/share/iproute2", "/usr/lib/locale/C.utf8",
}

// pluginGlobs find libraries that are opened by name at run time; they are linked files of their own and take part in the closure.
var pluginGlobs = []string{
	"/usr/lib/*/xtables/*.so", "/usr/lib64/xtables/*.so", "/usr/lib/xtables/*.so",
	"/usr/lib/*/libnss_files.so.2", "/usr/lib/*/libnss_dns.so.2", "/usr/lib/*/coreutils/libstdbuf.so", "/usr/libexec/coreutils/libstdbuf.so",
	"/usr/lib/*/libgcc_s.so.1",
}

// sbinPath finds tools the user's PATH leaves out.
const sbinPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// findTools maps tool names to absolute paths. Missing required ones are reported together with the remedy.
func findTools(required, optional []string, look func(string) (string, bool)) ([]string, error) {
	var found, missing []string
	for _, name := range required {
		if path, ok := look(name); ok {
			found = append(found, path)
		} else {
			missing = append(missing, name)
		}
	}
	for _, name := range optional {
		if path, ok := look(name); ok {
			found = append(found, path)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("tools missing on this machine: %s (run e2e/install.sh vm)", strings.Join(missing, " "))
	}
	return found, nil
}

func lookTool(name string) (string, bool) {
	for dir := range strings.SplitSeq(sbinPath, ":") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, true
		}
	}
	return "", false
}

// libraries returns every shared library that the given files need, themselves left out, sorted. The dynamic loader answers
// with the whole closure of a file at once.
func libraries(ctx context.Context, files []string, ldd func(context.Context, []string) (string, error)) ([]string, error) {
	text, err := ldd(ctx, files)
	if err != nil {
		return nil, err
	}
	if missing := missingLibraries(text); len(missing) > 0 {
		return nil, fmt.Errorf("shared libraries not found: %s", strings.Join(missing, " "))
	}
	return parseLdd(text), nil
}

// runLdd asks ldd. It fails with status 1 when one of the files is a script or static, and still answers for the others.
func runLdd(ctx context.Context, files []string) (string, error) {
	text, err := exec.CommandContext(ctx, "ldd", files...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("list shared libraries: %w", err)
	}
	return string(text), nil
}

// parseLdd picks the paths out of lines such as "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)" and
// "/lib64/ld-linux-x86-64.so.2 (0x...)". The latter is told from the headers "file:" by its address.
func parseLdd(text string) []string {
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		line, address, ok := strings.Cut(strings.TrimSpace(line), " (0x")
		if !ok || address == "" {
			continue
		}
		if _, path, ok := strings.Cut(line, "=> "); ok {
			line = path
		}
		if strings.HasPrefix(line, "/") {
			found[line] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func missingLibraries(text string) []string {
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutSuffix(strings.TrimSpace(line), " => not found"); ok {
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

package vm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUMLArgs(t *testing.T) {
	args := umlArgs(Options{MemoryMiB: 512}, "/tmp/own")
	for _, want := range []string{
		"mem=512M", "seccomp=on", "initrd=/proc/self/fd/3", "uml_dir=/tmp/own/uml", "con0=null,fd:4", "ssl0=null,fd:5", "ssl1=null,fd:6",
		"panic=-1", "dummy.numdummies=0",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("%v lack %s", args, want)
		}
	}
}

// TestUMLLink: the guest's frames go through the link that the options name, and init leaves addresses to the command.
func TestUMLLink(t *testing.T) {
	for link, want := range map[string]string{"": "ifname=guest,", "node1": "ifname=node1,"} {
		o := Options{MemoryMiB: 512, Accel: accelUML, Link: link}
		if args := strings.Join(umlArgs(o, "/tmp/own"), " "); !strings.Contains(args, want) {
			t.Errorf("link %q: %s lacks %s", link, args, want)
		}
		if got := bash(t, guestConfig(o)+`echo "$LINK"`); got != link+"\n" {
			t.Errorf("link %q is %q in the guest", link, got)
		}
	}
}

func TestUMLConfigCanBeSourced(t *testing.T) {
	config := guestConfig(Options{Accel: accelUML, Shares: []Share{{Host: "/a", Guest: "/src"}, {Host: "/b", Guest: "/run/out", Writable: true}}})
	got := bash(t, config+`echo $MACHINE; while read -r tag type options directory; do [ -z "$tag" ] || echo "$type $options $directory"; done <<<"$SHARES"`)
	if diff := cmp.Diff("uml\nhostfs ro,/a /src\nhostfs rw,/b /run/out\n", got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestMirror(t *testing.T) {
	for name, tt := range map[string]struct{ targets, want string }{
		"Debian's own":  {"Others main http://others/\nDebian main http://mirror/security/\nDebian contrib http://mirror/c/\nDebian main http://mirror/debian/\n", "http://mirror/debian/"},
		"another owner": {"Ubuntu main http://mirror/ubuntu/\n\n", ""},
		"nothing":       {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mirrorOf(tt.targets); got != tt.want {
				t.Errorf("mirror %q, want %q", got, tt.want)
			}
		})
	}
}

// source is a directory that looks like that of a kernel, and what make does in it: its olddefconfig drops a line.
func source(t *testing.T, drops string) (dir string, run func(...string) (string, error)) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"kernel/time.c": "/* time */\n", "Kconfig": "config X\n\n" + fixedTick + "100\n\nconfig Y\n"} {
		name = filepath.Join(dir, "arch/um", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, ".config")
	return dir, func(args ...string) (string, error) {
		switch args[0] {
		case "x86_64_defconfig":
			return "", os.WriteFile(config, []byte("CONFIG_UML=y\n"), 0o644)
		case "olddefconfig":
			text, err := os.ReadFile(config)
			return "", errors.Join(err, os.WriteFile(config, []byte(strings.ReplaceAll(string(text), drops+"\n", "")), 0o644))
		case "kernelrelease":
			return "9.9.9\n", nil
		}
		return "", errors.New("make what?")
	}
}

func TestConfigureUML(t *testing.T) {
	dir, run := source(t, "CONFIG_NOTHING=y")
	release, err := umlFull.configure(dir, run)
	if release != "9.9.9" || err != nil {
		t.Errorf("release %q, %v", release, err)
	}
	clock, err := os.ReadFile(filepath.Join(dir, "arch/um/kernel/time.c"))
	if err != nil || string(clock) != "/* time */\n"+umlClock {
		t.Errorf("the kernel's clock is\n%s%v", clock, err)
	}
	kconfig := filepath.Join(dir, "arch/um/Kconfig")
	if ticks, err := os.ReadFile(kconfig); err != nil || string(ticks) != "config X\n\n"+fixedTick+"250\n\nconfig Y\n" {
		t.Errorf("the kernel's clock ticks as in\n%s%v", ticks, err)
	}
	if _, err = umlFull.configure(dir, run); err == nil || !strings.Contains(err.Error(), kconfig+" lacks") {
		t.Errorf("a kernel whose clock ticks otherwise: %v, want the file named", err)
	}
	dir, run = source(t, "CONFIG_IP_VS=y")
	if _, err = umlFull.configure(dir, run); err == nil || !strings.Contains(err.Error(), "cannot be configured with CONFIG_IP_VS=y") {
		t.Errorf("a kernel that will have no IPVS: %v, want it named", err)
	}
}

func TestFindUMLUsesWhatIsThere(t *testing.T) {
	cache := t.TempDir()
	root := umlFull.root(cache)
	if err := errors.Join(os.MkdirAll(root, 0o755), os.WriteFile(filepath.Join(root, "release"), []byte("9.9.9\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	kernel, err := umlFull.find(t.Context(), cache, newProgress(os.Stderr))
	want := Kernel{Release: "9.9.9", Image: filepath.Join(root, "linux"), Modules: filepath.Join(root, "modules")}
	if kernel != want || err != nil {
		t.Errorf("found %+v, %v; want %+v", kernel, err, want)
	}
}

// Kernels that were built while comments were part of the key are found under it.
func TestCommentsOfUMLAreNotInItsKey(t *testing.T) {
	const key = "uml-5593bdb4d34d"
	if root := umlFull.root("/cache"); root != "/cache/"+key {
		t.Errorf("the kernel is kept in %s: change the key in this test with the configuration, and only then", root)
	}
	if got := withoutComments("# words\nCONFIG_A=y\n#\n# CONFIG_B is not set\n"); got != "CONFIG_A=y\n# CONFIG_B is not set\n" {
		t.Errorf("options:\n%s", got)
	}
}

func TestUMLWithoutIPTables(t *testing.T) {
	config := umlNFT.config()
	for _, word := range []string{"CONFIG_IP_SET=", "CONFIG_IP_SET_HASH_IP=", "CONFIG_NETFILTER_XT_", "CONFIG_NETFILTER_XTABLES=", "CONFIG_NFT_COMPAT=", "CONFIG_IP_NF_FILTER=", "CONFIG_IP6_NF_NAT="} {
		if strings.Contains(config, word) {
			t.Errorf("the configuration has %s", word)
		}
	}
	for _, line := range []string{"CONFIG_IP_VS=y\n", "CONFIG_NF_TABLES=y\n", "CONFIG_NF_NAT=y\n", "# CONFIG_NETFILTER_XTABLES is not set\n"} {
		if !strings.Contains(config, line) {
			t.Errorf("the configuration lacks %s", line)
		}
	}
	if umlNFT.root("/cache") == umlFull.root("/cache") {
		t.Error("two kernels have one place")
	}
	o := Options{Accel: accelUMLNFT}
	if o.Defaults(); o.Accel != accelUML || !o.NFTOnly || o.CPUs != 1 {
		t.Errorf("options %+v", o)
	}
	o = Options{Accel: accelUMLNoIPVS}
	if o.Defaults(); o.Accel != accelUML || !o.NoIPVS || o.NFTOnly {
		t.Errorf("options %+v", o)
	}
	if config := umlNoIPVS.config(); strings.Contains(config, "IPVS=") || strings.Contains(config, "IP_VS_") || !strings.Contains(config, "# CONFIG_IP_VS is not set\n") || !strings.Contains(config, "CONFIG_IP_SET=y\n") {
		t.Errorf("the configuration without IPVS:\n%s", config)
	}
	dir, run := source(t, "")
	if _, err := umlNFT.configure(dir, func(args ...string) (string, error) {
		if args[0] == "olddefconfig" {
			return "", appendTo(filepath.Join(dir, ".config"), "\nCONFIG_IP_SET=y\n")
		}
		return run(args...)
	}); err == nil || !strings.Contains(err.Error(), "cannot be configured without CONFIG_IP_SET") {
		t.Errorf("a kernel that would have ipset: %v, want it named", err)
	}
}

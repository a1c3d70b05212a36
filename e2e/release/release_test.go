package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func TestPackageVersions(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0": "0.1.0", "v1.2.3-rc.1": "1.2.3~rc.1", "v0.1.0-12-g0123abc": "0.1.0+12.g0123abc", "v0.1.0-rc.1-3-g0123abc-dirty": "0.1.0~rc.1+3.g0123abc+dirty",
		"0123abc": "0.0.0~20261128.120000.0123abc", "0123abc-dirty": "0.0.0~20261128.120000.0123abc.dirty",
	} {
		if got := packageVersion(version, noon); got != want {
			t.Errorf("%s becomes %s, want %s", version, got, want)
		}
	}
}

// dpkg, where it is, orders the versions of packages as git does.
func TestPackageVersionsAreInOrder(t *testing.T) {
	dpkg, err := exec.LookPath("dpkg")
	if err != nil {
		t.Skip("this machine has no dpkg, which compares versions")
	}
	older := ""
	for _, version := range []string{"v0.0.0-0", "0123abc", "v0.1.0-rc.1", "v0.1.0-rc.1-3-g0123abc", "v0.1.0-rc.2", "v0.1.0", "v0.1.0-12-g0123abc", "v0.1.1", "v0.10.0"} {
		next := packageVersion(version, noon)
		if older != "" && exec.Command(dpkg, "--compare-versions", older, "lt", next).Run() != nil {
			t.Errorf("%s is not older than %s", older, next)
		}
		older = next
	}
}

// An archive is the same whenever it is made, and has what was put into it.
func TestArchive(t *testing.T) {
	files := []entry{{name: "LICENSE", mode: 0o644, data: []byte("free")}, {name: "kube-ipvs", mode: 0o755, data: []byte("\x7fELF")}, {name: "kubectl-ipvs", mode: 0o777, link: "kube-ipvs"}}
	var made [2][]byte
	for i := range made {
		path := filepath.Join(t.TempDir(), "a.tar.gz")
		if err := archive(path, "kube-ipvs_v1", noon, files); err != nil {
			t.Fatal(err)
		}
		made[i], _ = os.ReadFile(filepath.Clean(path))
	}
	if len(made[0]) == 0 || !bytes.Equal(made[0], made[1]) {
		t.Error("two archives of the same files differ")
	}
	got, err := unpack(bytes.NewReader(made[0]))
	if err != nil || len(got) != len(files) {
		t.Fatalf("%d files, error %v", len(got), err)
	}
	for i, f := range got {
		if f.name != "kube-ipvs_v1/"+files[i].name || f.mode != files[i].mode || !bytes.Equal(f.data, files[i].data) || f.link != files[i].link {
			t.Errorf("got %s %o %q", f.name, f.mode, f.data)
		}
	}
}

// The chart has the version of the release, is read again, and is refused where it has another.
func TestChart(t *testing.T) {
	t.Chdir("../..")
	for version, want := range map[string]string{"v0.1.0": "0.1.0", "v0.1.0-12-g0123abc-dirty": "0.1.0-12-g0123abc-dirty", "0123456-dirty": "0.0.0-g0123456-dirty"} {
		o := options{version: version, date: noon, out: t.TempDir()}
		if err := chart(o); err != nil {
			t.Fatal(err)
		}
		if err := checkChart(o); err != nil || chartName(o) != "kube-ipvs-"+want+".tgz" {
			t.Errorf("%s: %s, error %v", version, chartName(o), err)
		}
		other := o
		other.version = "v9.9.9"
		if err := os.Rename(filepath.Join(o.out, chartName(o)), filepath.Join(o.out, chartName(other))); err != nil {
			t.Fatal(err)
		}
		if err := checkChart(other); err == nil || !strings.Contains(err.Error(), "Chart.yaml") {
			t.Errorf("a chart of another version: error %v", err)
		}
	}
}

// Each module in the program has its license in the text, and so has Go.
func TestLicensesOfAllModules(t *testing.T) {
	t.Chdir("../..")
	text, err := licenses("linux", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./cmd/kube-ipvs").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		modules++
		if !bytes.Contains(text, []byte("==== "+line+": ")) {
			t.Errorf("no license of %s", line)
		}
	}
	if modules < 100 || !bytes.Contains(text, []byte("==== Go go1.")) || !bytes.Contains(text, []byte("The Go Authors")) {
		t.Errorf("%d packages of modules, or no license of Go", modules)
	}
}

// A module without a license may not be shipped.
func TestModuleWithoutLicense(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a/b")
	if err := put(root, noon, entry{name: "a/b/LICENSE", mode: 0o644, data: []byte("of b alone")}); err != nil {
		t.Fatal(err)
	}
	l := ledger{texts: map[string][]byte{}, seen: map[string]bool{}}
	if err := l.add("example.com/m v1.0.0", root, dir); err == nil || !strings.Contains(err.Error(), "has no license") {
		t.Errorf("error %v", err)
	}
	if err := put(root, noon, entry{name: "COPYING", mode: 0o644, data: []byte("of all")}); err != nil {
		t.Fatal(err)
	}
	l = ledger{texts: map[string][]byte{}, seen: map[string]bool{}}
	if err := l.add("example.com/m v1.0.0", root, dir); err != nil {
		t.Fatal(err)
	}
	if want := "==== example.com/m v1.0.0: COPYING\n\nof all\n\n==== example.com/m v1.0.0: a/b/LICENSE\n\nof b alone\n\n"; string(l.bytes()) != want {
		t.Errorf("got %q", l.bytes())
	}
}

// The settings of the packages name no variable that is not filled in, and the files that
// a release checks are among their contents.
func TestSettingsOfPackages(t *testing.T) {
	text, err := os.ReadFile("../../manifests/package/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := settings(options{version: "v0.1.0", date: noon, maintainer: "authors"}, "amd64", "/stage", "deb").Replace(string(text))
	if left := regexp.MustCompile(`\$[A-Z]+`).FindAllString(got, -1); left != nil {
		t.Errorf("not filled in: %v", left)
	}
	for _, want := range []string{"version: 0.1.0\n", "arch: amd64\n", "mtime: 2026-11-28T12:00:00Z\n", "src: /stage/kube-ipvs,", "dst: /usr/share/zsh/vendor-completions/_kube-ipvs"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, path := range installed {
		if strings.HasPrefix(path, "usr/share/man/") {
			continue // a tree
		}
		if !strings.Contains(got, "dst: /"+path) {
			t.Errorf("/%s is checked and not packaged", path)
		}
	}
}

// A package starts another program than the unit of the archive, and compresses manual pages.
func TestPackagedFiles(t *testing.T) {
	unit, err := os.ReadFile("../../manifests/systemd/kube-ipvs.service")
	if err != nil {
		t.Fatal(err)
	}
	got := packaged(entry{name: "systemd/kube-ipvs.service", mode: 0o644, data: unit})
	if !bytes.Contains(got.data, []byte("ExecStart=/usr/bin/kube-ipvs ")) || bytes.Contains(got.data, []byte("/usr/local")) {
		t.Errorf("the unit starts another program:\n%s", got.data)
	}
	page := packaged(entry{name: "man/man8/kube-ipvs.8", mode: 0o644, data: []byte("page")})
	if page.name != "man/man8/kube-ipvs.8.gz" || !bytes.HasPrefix(page.data, []byte{0x1f, 0x8b}) {
		t.Errorf("a manual page becomes %s, %q", page.name, page.data)
	}
}

// Packages that are damaged are refused, and never end the program.
func TestDamagedPackages(t *testing.T) {
	rpm := append([]byte{0xed, 0xab, 0xee, 0xdb}, make([]byte, 92)...)
	header := []byte{0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for _, text := range [][]byte{nil, []byte("text"), rpm, append(bytes.Clone(rpm), header...)} {
		if _, err := readRPM(text); err == nil {
			t.Errorf("an rpm of %q is read", text)
		}
	}
	for _, text := range []string{"", "!<arch>\n" + strings.Repeat(" ", 60), "!<arch>\n" + "control.tar.gz  0           0     0     100644  99        `\n"} {
		if _, err := readDeb([]byte(text)); err == nil {
			t.Errorf("a deb of %q is read", text)
		}
	}
	for _, text := range []string{"", "070701", "070701" + strings.Repeat("f", 104), "070701" + strings.Repeat("0", 104)} {
		if _, err := readCPIO([]byte(text)); err == nil {
			t.Errorf("a cpio archive of %q is read", text)
		}
	}
}

// A program for another architecture, or one that needs a loader, is no release.
func TestCheckProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Clean(self))
	if err != nil {
		t.Fatal(err)
	}
	if err := checkProgram(program, "s390x"); err == nil || !strings.Contains(err.Error(), "want EM_S390") {
		t.Errorf("error %v", err)
	}
}

// TestPlugins: the manifest for krew names archives that are there, with their sums, and what krew would
// refuse is refused before.
func TestPlugins(t *testing.T) {
	self, err := os.ReadFile(filepath.Clean(os.Args[0]))
	if err != nil {
		t.Fatal(err)
	}
	o := options{version: "v0.1.0", date: noon, out: t.TempDir(), arches: []string{"s390x", runtime.GOARCH}}
	good := []entry{{name: "LICENSE", mode: 0o644, data: []byte("free")}, {name: "LICENSES.txt", mode: 0o644, data: []byte("free")}, {name: pluginFile, mode: 0o755, data: self}}
	here := platform{"linux", runtime.GOARCH}
	pack := func(files []entry) krewPlatform {
		for _, p := range platforms(o) {
			if err := archive(filepath.Join(o.out, pluginName(o, p)), "kubectl-ipvs", noon, files); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeKrew(o); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(o.out, krewName))
		if err != nil {
			t.Fatal(err)
		}
		var m krew
		if err := yaml.Unmarshal(text, &m); err != nil || m.Spec.Version != "v0.1.0" || len(m.Spec.Platforms) != len(platforms(o)) {
			t.Fatalf("error %v in\n%s", err, text)
		}
		i := slices.IndexFunc(m.Spec.Platforms, func(p krewPlatform) bool { return strings.HasSuffix(p.URI, "/v0.1.0/"+pluginName(o, here)) })
		return m.Spec.Platforms[i]
	}
	p := pack(good)
	if err := checkPlugin(o, p); err != nil && !strings.Contains(err.Error(), "not static") { // as a test with the race detector is
		t.Error(err)
	}
	other := p
	other.SHA256 = "0"
	if err := checkPlugin(o, other); err == nil || !strings.Contains(err.Error(), "sum ") {
		t.Errorf("another sum: error %v", err)
	}
	if err := checkPlugins(o); err == nil {
		t.Error("the program of this machine passes for one of another")
	}
	if err := checkPlugin(o, pack(append(good[:2:2], entry{name: pluginFile, link: "kube-ipvs"}))); err == nil || !strings.Contains(err.Error(), "krew refuses") {
		t.Errorf("a link: error %v", err)
	}
	if err := checkPlugin(o, pack(good[1:])); err == nil || !strings.Contains(err.Error(), "LICENSE is missing") {
		t.Errorf("no license: error %v", err)
	}
}

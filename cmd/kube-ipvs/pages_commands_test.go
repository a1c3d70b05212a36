package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-ipvs/kube-ipvs/internal/cli"
)

// shell is a fenced block of commands that need a cluster, a node or root.
var shell = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// The blocks of commands of each page run in order, as one script. Programs that change a
// cluster or a machine are stubs: each notes its command line, and kubectl keeps what it is
// to apply.
func TestPageCommands(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	stubs := stubPrograms(t, root)
	scripts := 0
	for path, text := range allPages(t) {
		blocks := shell.FindAllStringSubmatch(text, -1)
		if len(blocks) == 0 {
			continue
		}
		scripts++
		t.Run(filepath.Base(path), func(t *testing.T) {
			script := "set -euo pipefail\n"
			for _, b := range blocks {
				script += b[1]
			}
			for _, line := range runPage(t, root, stubs, script) {
				checkCommand(t, line)
			}
		})
	}
	if scripts < 8 {
		t.Errorf("%d pages have commands, want at least 8", scripts)
	}
}

// The blocks of commands on the pages for contributors run in order, too. Programs and scripts of
// the repository are stubs, and each command line is checked: packages, scripts, targets of make and
// their choices, and flags of our programs exist.
func TestContributorCommands(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../e2e/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, page := range pages {
		script := "set -euo pipefail\n"
		for _, b := range shell.FindAllStringSubmatch(readPage(t, page), -1) {
			script += b[1]
		}
		t.Run(filepath.Base(filepath.Dir(page)), func(t *testing.T) {
			for _, line := range runSources(t, root, script) {
				commands++
				checkSourceCommand(t, root, line)
			}
		})
	}
	if commands < 20 {
		t.Errorf("%d commands found, want at least 20", commands)
	}
}

// runSources runs a script in a directory that has a stub for each script of e2e. The stub of go
// makes one for each program that it builds.
func runSources(t *testing.T, root, script string) []string {
	t.Helper()
	dir, stubs := t.TempDir(), t.TempDir()
	const note = "#!/bin/bash\necho \"$0 $*\" >>\"$STUBS/commands\"\n"
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	scripts, err := filepath.Glob(filepath.Join(root, "e2e/*.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		write(filepath.Join(dir, "e2e", filepath.Base(s)), note)
	}
	write(filepath.Join(stubs, "make"), note)
	write(filepath.Join(stubs, "go"), note+goStub)
	for _, name := range []string{"cp", "mkdir", "basename"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(stubs, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + stubs, "STUBS=" + dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	log, err := os.ReadFile(filepath.Join(dir, "commands")) //nolint:gosec // written by the stubs
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(string(log), stubs+"/", "")), "\n")
}

// goStub puts a stub into the place of each program that go build or go test -c would write.
const goStub = `
to=
while [[ $# -gt 0 ]]; do
	case $1 in
	-o) to=$2; shift ;;
	./*) if [[ $to == */ ]]; then built+=("$to$(basename "$1")"); elif [[ -n $to ]]; then built+=("$to"); fi ;;
	esac
	shift
done
for f in "${built[@]}"; do mkdir -p bin; cp e2e/suite.sh "$f"; done
`

var (
	sourcePackage = regexp.MustCompile(`(?:^| )\./(\S+)`)
	sourceFlag    = regexp.MustCompile(`^-([a-z][a-z-]*)$`)
)

// checkSourceCommand requires a command line of a contributor to name things that exist.
func checkSourceCommand(t *testing.T, root, line string) {
	t.Helper()
	fields := strings.Fields(line)
	program := filepath.Base(fields[0])
	if program == "go" || strings.HasPrefix(fields[0], "bin/") {
		for _, m := range sourcePackage.FindAllStringSubmatch(line, -1) {
			if files, err := filepath.Glob(filepath.Join(root, m[1], "*.go")); err != nil || len(files) == 0 {
				t.Errorf("%s: no package %s", line, m[1])
			}
		}
	}
	switch {
	case program == "make":
		checkMake(t, root, line, fields[1:])
	case program == "vmrun":
		checkFlags(t, filepath.Join(root, "e2e/vm/vmrun"), line, fields[1:])
	case program == "bench-peers.sh":
		checkFlags(t, filepath.Join(root, "e2e/bench"), line, fields[1:])
	case program == "go" && fields[1] == "run" && fields[2] == "./e2e/bench":
		checkFlags(t, filepath.Join(root, "e2e/bench"), line, fields[3:])
	}
}

// checkMake requires a target of the Makefile, and a choice of WHAT that e2e/bench.sh or the suite has.
func checkMake(t *testing.T, root, line string, args []string) {
	t.Helper()
	if !strings.Contains(readPage(t, filepath.Join(root, "Makefile")), "\n"+args[0]+":") {
		t.Errorf("%s: no target %s", line, args[0])
	}
	choices := readPage(t, filepath.Join(root, "e2e/bench.sh"))
	if args[0] != "bench" {
		choices = readPage(t, filepath.Join(root, "e2e/suite/stages.go"))
	}
	for _, a := range args[1:] {
		name, value, _ := strings.Cut(a, "=")
		if name == "WHAT" && !regexp.MustCompile(`(?m)"`+value+`"|^#   `+value+` `).MatchString(choices) {
			t.Errorf("%s: no choice %s", line, value)
		}
	}
}

// checkFlags requires the flags before -- or before a word to be declared in a package.
func checkFlags(t *testing.T, dir, line string, args []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no package %s, error %v", dir, err)
	}
	var sources strings.Builder
	for _, f := range files {
		sources.WriteString(readPage(t, f))
	}
	for _, a := range args {
		if a == "--" {
			return
		}
		m := sourceFlag.FindStringSubmatch(a)
		if m != nil && m[1] != "h" && m[1] != "help" && !strings.Contains(sources.String(), `"`+m[1]+`",`) {
			t.Errorf("%s: %s has no flag %s", line, dir, a)
		}
	}
}

// runPage runs a script with stubs alone in its PATH and returns the command lines of the stubs.
func runPage(t *testing.T, root, stubs, script string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(root, "manifests"), filepath.Join(dir, "manifests")); err != nil {
		t.Fatal(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bash, "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + stubs, "REGISTRY=registry.example", "IMAGE=registry.example/kube-ipvs:v1", "STUBS=" + dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	applied, err := filepath.Glob(filepath.Join(dir, "applied.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range applied {
		checkApplied(t, readPage(t, file))
	}
	log, err := os.ReadFile(filepath.Join(dir, "commands")) //nolint:gosec // written by the stubs
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(log)), "\n")
}

// stubPrograms makes a directory with the programs that a page may use: some of this machine,
// and stubs.
func stubPrograms(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range strings.Fields("bash cat diff grep sed sort") {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const note = "#!/bin/bash\necho \"${0##*/} $*\" >>\"$STUBS/commands\"\n"
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	for _, name := range strings.Fields("apparmor_parser cp curl go install ip iptables-save ipvsadm kubeadm make mkdir nft scp ssh systemctl") {
		write(name, note)
	}
	write("kube-ipvs", note+"case \" $* \" in *' - '*) cat >/dev/null ;; esac\n")
	write("helm", note)
	write("tee", note+"cat >/dev/null\n") // what writes to it must not find the pipe closed
	write("git", note+"echo v1\n")
	write("sudo", note+"exec \"$@\"\n")
	write("kubectl", note+fmt.Sprintf(kubectlStub, filepath.Join(root, "manifests/testdata/kubeadm.yaml")))
	return dir
}

// kubectlStub prints kubeadm's DaemonSet for each object that is asked for as YAML, and the files
// of a kustomization. The files that it applies are kept as applied.N.
const kubectlStub = `
keep() { n=0; while [[ -e $STUBS/applied.$n ]]; do n=$((n + 1)); done; cat "$@" >"$STUBS/applied.$n"; }
case $1 in
config) echo https://192.0.2.1:6443; exit ;;
delete) exit ;;
kustomize) for f in "$2"/*.yaml; do [[ $f == */kustomization.yaml ]] || { cat "$f"; echo ---; }; done; exit ;;
esac
last=
for a in "$@"; do
	case $last in
	-f | --patch-file) if [[ $a == - ]]; then keep; else keep "$a"; fi ;;
	-k) [[ -e $a/kustomization.yaml ]] ;;
	esac
	last=$a
done
case $last in yaml) cat %s ;; esac
`

// checkApplied requires objects that kubectl could apply, with nothing left to be filled in.
func checkApplied(t *testing.T, text string) {
	t.Helper()
	for _, left := range []string{"control-plane.invalid", "kube-ipvs:dev", `clusterCIDR: ""`} {
		if strings.Contains(text, left) {
			t.Errorf("%s is not filled in", left)
		}
	}
	objects := 0
	for _, doc := range strings.Split("\n"+text+"\n", "\n---\n") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Errorf("%v in\n%s", err, doc)
		}
		if head.APIVersion != "" && head.Kind != "" {
			objects++
		}
	}
	if objects == 0 {
		t.Errorf("no object in\n%s", text)
	}
}

var (
	ourCommand = regexp.MustCompile(`(?:^|-- |\./)kube-ipvs ([a-z-].*)$`)
	daemonSet  = regexp.MustCompile(`\b(?:ds/|ds )([a-z-]+)`)
)

// checkCommand requires verbs and flags of this program that exist, and DaemonSets of the manifests.
func checkCommand(t *testing.T, line string) {
	t.Helper()
	if m := daemonSet.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "kubectl") {
		switch m[1] {
		case "kube-ipvs", "kube-ipvs-cleanup", "kube-proxy":
		default:
			t.Errorf("%s: there is no DaemonSet %s", line, m[1])
		}
	}
	m := ourCommand.FindStringSubmatch(line)
	if m == nil || strings.HasPrefix(line, "sudo") {
		return
	}
	cmd, rest, err := cli.NewRoot().Find(strings.Fields(m[1]))
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
}

// fragments are the YAML blocks that are no manifests: by the name of the block, what each has
// to be.
var fragments = map[string]func() any{
	"pod-check.yaml":     func() any { return new(corev1.PodSpec) },
	"kustomization.yaml": func() any { return new(kustomization) },
	"config.yaml":        func() any { return new(map[string]any) },
}

type kustomization struct {
	APIVersion, Kind      string
	Resources, Components []string
	Images                []struct{ Name, NewName, NewTag string }
}

// The fragments of YAML on the pages have known fields, and name files that exist.
func TestPageFragments(t *testing.T) {
	volumes := map[string]bool{}
	var base appsv1.DaemonSet
	if err := yaml.Unmarshal([]byte(readPage(t, "../../manifests/base/daemonset.yaml")), &base); err != nil {
		t.Fatal(err)
	}
	for _, v := range base.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	found := 0
	for path, text := range allPages(t) {
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			empty := fragments[m[2]]
			if empty == nil {
				continue
			}
			found++
			into := empty()
			if err := yaml.UnmarshalStrict([]byte(m[3]), into); err != nil {
				t.Errorf("%s: %s: %v", path, m[2], err)
			}
			switch o := into.(type) {
			case *corev1.PodSpec:
				for _, v := range o.InitContainers[0].VolumeMounts {
					if !volumes[v.Name] {
						t.Errorf("%s: the base has no volume %s", path, v.Name)
					}
				}
			case *map[string]any:
				file := filepath.Join(t.TempDir(), m[2])
				if err := os.WriteFile(file, []byte(m[3]), 0o600); err != nil {
					t.Fatal(err)
				}
				execute(t, "--config", file, "--write-config-to", file+".all")
			case *kustomization:
				for _, dir := range append(o.Resources, o.Components...) {
					if _, err := os.Stat(filepath.Join("../..", strings.TrimPrefix(dir, "kube-ipvs/"), "kustomization.yaml")); err != nil {
						t.Errorf("%s: %v", path, err)
					}
				}
			}
		}
	}
	if found != len(fragments) {
		t.Errorf("%d fragments found, want %d", found, len(fragments))
	}
}

// Each test that a page names exists.
func TestPagesNameTests(t *testing.T) {
	known := map[string]bool{}
	named := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range named.FindAllStringSubmatch(readPage(t, path), -1) {
			known[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// RUN= takes the beginning of a name.
	begins := func(name string) bool {
		for k := range known {
			if strings.HasPrefix(k, name) {
				return true
			}
		}
		return false
	}
	names := 0
	for path, text := range allPages(t) {
		for _, m := range regexp.MustCompile(`(RUN=)?\b(Test[A-Z]\w+)`).FindAllStringSubmatch(text, -1) {
			names++
			if !known[m[2]] && (m[1] == "" || !begins(m[2])) {
				t.Errorf("%s names %s, which does not exist", path, m[2])
			}
		}
	}
	if names < 20 {
		t.Errorf("%d tests named, want at least 20", names)
	}
}

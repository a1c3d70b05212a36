package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// block is a fenced block of the README that names a file: a manifest, or what
// the program prints for it.
var block = regexp.MustCompile("(?ms)^```(yaml|console) (\\S+)\n(.*?)^```$")

// The examples of the README are run as they stand. What goes to standard error is shown
// where the command ends with 2>&1.
func TestReadmeExamples(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	commands := 0
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		kind, name, body := m[1], m[2], m[3]
		if kind == "yaml" {
			if err := os.WriteFile(filepath.Clean(name), []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, example := range strings.Split(body, "$ kube-ipvs ")[1:] {
			commands++
			command, want, _ := strings.Cut(example, "\n")
			if diff := cmp.Diff(want, shown(t, command)); diff != "" {
				t.Errorf("kube-ipvs %s (-README +got):\n%s", command, diff)
			}
		}
	}
	if commands < 3 {
		t.Errorf("%d commands found in the README, want at least 3", commands)
	}
}

// recording is a fenced block of the README that shows what a verb prints on a node, and
// names the file that has it.
var recording = regexp.MustCompile("(?ms)^```text (e2e/recordings/\\S+)\n(.*?)^```$")

// What the README shows of the verbs is what make golden WHAT=recordings has written. With
// KUBE_IPVS_E2E_RECORD it is put there.
func TestReadmeRecordings(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	fresh := recording.ReplaceAllStringFunc(string(text), func(found string) string {
		file := recording.FindStringSubmatch(found)[1]
		shown[file] = true
		body, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Error(err)
			return found
		}
		return "```text " + file + "\n" + string(body) + "```"
	})
	if os.Getenv("KUBE_IPVS_E2E_RECORD") != "" {
		if err := os.WriteFile("../../README.md", []byte(fresh), 0o644); err != nil { //nolint:gosec // as readable as it was
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(text), fresh); diff != "" {
		t.Errorf("README shows something else than is recorded: make golden WHAT=recordings (-README +recorded):\n%s", diff)
	}
	files, err := filepath.Glob("../../e2e/recordings/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings, error %v", err)
	}
	for _, f := range files {
		if name := "e2e/recordings/" + filepath.Base(f); !shown[name] {
			t.Errorf("%s is not in the README", name)
		}
	}
}

// shown is what a reader of the README sees who types the command.
func shown(t *testing.T, command string) string {
	t.Helper()
	words, both := strings.CutSuffix(command, " 2>&1")
	out, notes, err := talk(strings.Fields(words)...)
	if err != nil {
		t.Fatalf("kube-ipvs %s: %v", words, err)
	}
	if both {
		return notes + out // as they come: notes first
	}
	return out
}

// The tables of the README name every scheduler, with what it makes of weights, and no
// annotation that is not read.
func TestReadmePolicy(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Policy per Service\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` +\\|[^|]*\\| ([^|]*?) +\\|").FindAllStringSubmatch(section, -1) {
		rows[m[1]] = m[2]
	}
	for _, a := range scheduler.Algorithms() {
		if rows[a.Name] != a.Weight.String() {
			t.Errorf("scheduler %s has weights %q in the README, want %s", a.Name, rows[a.Name], a.Weight)
		}
		delete(rows, a.Name)
	}
	if len(rows) < 8 {
		t.Errorf("the README has %d annotations, want 8 at least", len(rows))
	}
	for key := range rows {
		if !slices.Contains(source.Keys(), key) {
			t.Errorf("the README has an annotation %s that nobody reads", key)
		}
	}
}

// execute runs the program and returns what it prints.
func execute(t *testing.T, args ...string) string {
	t.Helper()
	out, err := try(args...)
	if err != nil {
		t.Fatalf("kube-ipvs %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func try(args ...string) (string, error) {
	out, _, err := talk(args...)
	return out, err
}

// talk runs the program and returns what it prints to both its outputs.
func talk(args ...string) (out, notes string, err error) {
	var o, n bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&o)
	root.SetErr(&n)
	err = root.Execute()
	return o.String(), n.String(), err
}

// Every flag in the README exists, and every flag that help shows is in the README.
func TestReadmeFlags(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	ours := recording.ReplaceAll(text, nil) // what is recorded has options of iptables in it
	for _, f := range regexp.MustCompile(`--[a-z][-a-z]+`).FindAllString(string(ours), -1) {
		named[f] = true
	}
	root := newRoot()
	known := map[string]bool{"--help": true, "--version": true, "--output": true}
	for _, cmd := range below(root) {
		for _, flags := range []*pflag.FlagSet{cmd.PersistentFlags(), cmd.LocalNonPersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				known["--"+f.Name] = true
				if !named["--"+f.Name] && !f.Hidden && len(f.Name) > 1 {
					t.Errorf("--%s is not in the README", f.Name)
				}
			})
		}
	}
	for f := range named {
		if !known[f] {
			t.Errorf("%s is in the README but no flag", f)
		}
	}
}

// below lists a command and all verbs below it.
func below(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		all = append(all, below(c)...)
	}
	return all
}

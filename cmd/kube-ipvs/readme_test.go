package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// block is a fenced block of the README that names a file: a manifest, or what
// the program prints for it.
var block = regexp.MustCompile("(?ms)^```(yaml|console) (\\S+)\n(.*?)^```$")

// The examples of the README are run as they stand.
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
			if diff := cmp.Diff(want, execute(t, strings.Fields(command)...)); diff != "" {
				t.Errorf("kube-ipvs %s (-README +got):\n%s", command, diff)
			}
		}
	}
	if commands < 3 {
		t.Errorf("%d commands found in the README, want at least 3", commands)
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
	for _, f := range regexp.MustCompile(`--[a-z][-a-z]+`).FindAllString(string(text), -1) {
		named[f] = true
	}
	root := newRoot()
	known := map[string]bool{"--help": true, "--version": true, "--output": true}
	for _, cmd := range append(root.Commands(), root) {
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

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-ipvs/kube-ipvs/internal/cli"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// pagePaths are the pages for operators, README.md, manifests and cmd, and those for contributors.
func pagePaths(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"../../README.md", "../../manifests/*.md", "../../manifests/docs/*.md", "../*.md", "../../.github/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no page %s, error %v", pattern, err)
		}
		paths = append(paths, found...)
	}
	return paths
}

// readPage is the text of a page.
func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// allPages are the texts of all pages, by path.
func allPages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, path := range pagePaths(t) {
		texts[path] = readPage(t, path)
	}
	return texts
}

// block is a fenced block of a page that names a file: a manifest, or what the program prints
// for it.
var block = regexp.MustCompile("(?ms)^```(yaml|console) (\\S+)\n(.*?)^```$")

// The examples of the pages are run as they stand. Standard error is shown if the command ends with
// 2>&1.
func TestPageExamples(t *testing.T) {
	texts := allPages(t)
	t.Chdir(t.TempDir())
	writeManifests(t, texts)
	commands := 0
	for path, text := range texts {
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			if m[1] != "console" {
				continue
			}
			for _, example := range strings.Split(m[3], "$ kube-ipvs ")[1:] {
				commands++
				command, want, _ := strings.Cut(example, "\n")
				if diff := cmp.Diff(want, shown(t, command)); diff != "" {
					t.Errorf("%s: kube-ipvs %s (-page +got):\n%s", path, command, diff)
				}
			}
		}
	}
	if commands < 6 {
		t.Errorf("%d commands found in the pages, want at least 6", commands)
	}
}

// writeManifests puts the manifests of all pages into the working directory.
func writeManifests(t *testing.T, texts map[string]string) {
	t.Helper()
	files := map[string]string{}
	for path, text := range texts {
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			name, body := m[2], m[3]
			if m[1] != "yaml" {
				continue
			}
			if other, there := files[name]; there && other != body {
				t.Errorf("%s: another %s than on another page", path, name)
			}
			files[name] = body
			if err := os.WriteFile(filepath.Clean(name), []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// recording is a fenced block of a page that shows what a verb prints, on a node or in a test, and
// names the file that has it.
var recording = regexp.MustCompile("(?ms)^```text ((?:e2e/recordings|internal/cli/testdata)/\\S+)\n(.*?)^```$")

// The samples of verbs on the pages are the files that make golden WHAT=recordings has written.
// With KUBE_IPVS_E2E_RECORD it is put there.
func TestPageRecordings(t *testing.T) {
	shown := map[string]bool{}
	for path, text := range allPages(t) {
		fresh := recording.ReplaceAllStringFunc(text, func(found string) string {
			file := recording.FindStringSubmatch(found)[1]
			shown[file] = true
			return "```text " + file + "\n" + readPage(t, filepath.Join("../..", file)) + "```"
		})
		if os.Getenv("KUBE_IPVS_E2E_RECORD") != "" {
			if err := os.WriteFile(filepath.Clean(path), []byte(fresh), 0o644); err != nil { //nolint:gosec // as readable as it was
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(text, fresh); diff != "" {
			t.Errorf("%s shows something else than is recorded: make golden WHAT=recordings (-page +recorded):\n%s", path, diff)
		}
	}
	files, err := filepath.Glob("../../e2e/recordings/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings, error %v", err)
	}
	for _, f := range files {
		if name := "e2e/recordings/" + filepath.Base(f); !shown[name] {
			t.Errorf("%s is on no page", name)
		}
	}
}

// README shows the first lines of what check has recorded.
func TestREADMEShowsCheck(t *testing.T) {
	_, recorded, _ := strings.Cut(readPage(t, "../../e2e/recordings/check.txt"), "\n")
	head := strings.SplitAfterN(recorded, "\n", 10)
	want := "$ sudo kube-ipvs check | head -n 9\n" + strings.Join(head[:len(head)-1], "")
	if len(head) != 10 || !strings.Contains(readPage(t, "../../README.md"), want) {
		t.Errorf("README does not have\n%s", want)
	}
}

// The sample of check for troubleshooting has lines of the recorded output, in their order.
func TestTroubleshootingShowsCheck(t *testing.T) {
	_, sample, found := strings.Cut(readPage(t, "../../manifests/docs/troubleshooting.md"), "\n```text check\n")
	sample, _, closed := strings.Cut(sample, "```\n")
	if !found || !closed || strings.Count(sample, "\n") < 10 {
		t.Fatalf("no sample of check with ten lines: %q", sample)
	}
	rest := readPage(t, "../../e2e/recordings/check.txt")
	for line := range strings.Lines(sample) {
		if line == "...\n" {
			continue
		}
		var there bool
		if _, rest, there = strings.Cut(rest, line); !there {
			t.Errorf("not recorded, or not in this order: %s", line)
		}
	}
}

// mostPage bounds how long a page is, in bytes. A page of recordings may be longer.
const mostPage = 12 << 10

var (
	fences  = regexp.MustCompile("(?ms)^```.*?^```$")
	linkTo  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile("(?m)^#+ (.*)$")
	// unlinked is what a heading loses on its way to an anchor, as GitHub makes it.
	unlinked = regexp.MustCompile("[^a-z0-9 _-]")
)

// Pages are short, have lines of 100 characters at most, but for tables and blocks, and their
// links lead to headings that exist.
func TestPagesAreReadable(t *testing.T) {
	texts := allPages(t)
	for _, pattern := range []string{"../../e2e/*.md", "../../e2e/*/README.md", "../../e2e/bench/results/*.md", "../../ipset/*.md", "../../scheduler/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no page %s, error %v", pattern, err)
		}
		for _, path := range found {
			texts[path] = readPage(t, path)
		}
	}
	for _, path := range []string{"../../internal/README.md", "../../internal/DECISIONS.md"} {
		texts[path] = readPage(t, path) // as long as they need to be
	}
	for path, text := range texts {
		if len(text) > mostPage && !strings.Contains(path, "/internal/") && filepath.Base(path) != "recordings.md" {
			t.Errorf("%s has %d bytes, more than %d", path, len(text), mostPage)
		}
		outside := fences.ReplaceAllString(text, "")
		for line := range strings.Lines(outside) {
			line = strings.TrimRight(line, "\n")
			if utf8.RuneCountInString(line) > 100 && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "    ") {
				t.Errorf("%s: a line of more than 100 characters: %s", path, line)
			}
		}
		for _, m := range linkTo.FindAllStringSubmatch(outside, -1) {
			checkLink(t, path, m[1])
		}
	}
}

// checkLink requires a file, and the heading in it that is named.
func checkLink(t *testing.T, page, target string) {
	t.Helper()
	if strings.Contains(target, "://") {
		return
	}
	file, anchor, _ := strings.Cut(target, "#")
	to := page
	if file != "" {
		to = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(to); err != nil {
		t.Errorf("%s: link to %s: %v", page, target, err)
		return
	}
	if anchor == "" {
		return
	}
	for _, h := range heading.FindAllStringSubmatch(fences.ReplaceAllString(readPage(t, to), ""), -1) {
		if strings.ReplaceAll(unlinked.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-") == anchor {
			return
		}
	}
	t.Errorf("%s: link to %s: there is no such heading", page, target)
}

// shown is what the program prints for a command.
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

// The tables of the page name every scheduler, with what it makes of weights, and no annotation
// that is not read.
func TestPageOfAnnotations(t *testing.T) {
	section := readPage(t, "../../manifests/docs/annotations.md")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` +\\|[^|]*\\| ([^|]*?) +\\|").FindAllStringSubmatch(section, -1) {
		rows[m[1]] = m[2]
	}
	for _, a := range scheduler.Algorithms() {
		if rows[a.Name] != a.Weight.String() {
			t.Errorf("scheduler %s has weights %q on the page, want %s", a.Name, rows[a.Name], a.Weight)
		}
		delete(rows, a.Name)
	}
	if len(rows) < 8 {
		t.Errorf("the page has %d annotations, want 8 at least", len(rows))
	}
	for key := range rows {
		if !slices.Contains(source.Keys(), key) {
			t.Errorf("the page has an annotation %s that is not read", key)
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
	root := cli.NewRoot()
	root.SetArgs(args)
	root.SetOut(&o)
	root.SetErr(&n)
	err = root.Execute()
	return o.String(), n.String(), err
}

// Every flag on the pages exists, and every flag that help shows is on one.
func TestPagesNameAllFlags(t *testing.T) {
	named := map[string]bool{}
	for _, text := range allPages(t) {
		ours := recording.ReplaceAllString(text, "") // recorded output has options of iptables in it
		ours = shell.ReplaceAllString(ours, "")      // TestPageCommands looks at these
		for _, f := range regexp.MustCompile(`--[a-z][-a-z]+`).FindAllString(ours, -1) {
			named[f] = true
		}
	}
	root := cli.NewRoot()
	known := map[string]bool{"--help": true, "--version": true, "--output": true,
		"--service-cluster-ip-range": true, "--skip-phases": true, "--take-ownership": true} // of the API server, of kubeadm init, of Helm
	for _, cmd := range below(root) {
		for _, flags := range []*pflag.FlagSet{cmd.PersistentFlags(), cmd.LocalNonPersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				known["--"+f.Name] = true
				if !named["--"+f.Name] && !f.Hidden && len(f.Name) > 1 {
					t.Errorf("--%s is on no page", f.Name)
				}
			})
		}
	}
	for f := range named {
		if !known[f] {
			t.Errorf("%s is on a page but no flag", f)
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

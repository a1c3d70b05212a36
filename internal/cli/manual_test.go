package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// each visits a command and all below it.
func each(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		each(c, visit)
	}
}

// The help of each verb has a line about its purpose, some lines about its work, and examples.
func TestVerbsAreDescribed(t *testing.T) {
	n := 0
	each(NewRoot(), func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		n++
		if c.Short == "" || c.Long == "" || c.Example == "" {
			t.Errorf("%s: Short %q, Long %q, Example %q: none may be empty", c.CommandPath(), c.Short, c.Long, c.Example)
		}
		if strings.HasSuffix(c.Short, ".") || strings.Contains(c.Short, "\n") {
			t.Errorf("%s: Short %q is one line without a full stop", c.CommandPath(), c.Short)
		}
	})
	if n < 8 {
		t.Errorf("%d verbs, want 8 at least", n)
	}
}

// pages reads what man writes.
func manualPages(t *testing.T) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "man8")
	if out := execute(t, "man", dir); out != "" {
		t.Errorf("man says %q", out)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		text[f.Name()] = string(b)
	}
	return text
}

// There is a page for each verb that help shows, twice the same.
func TestManualPages(t *testing.T) {
	got := manualPages(t)
	if diff := cmp.Diff(got, manualPages(t)); diff != "" {
		t.Errorf("another run writes others (-first +second):\n%s", diff)
	}
	each(NewRoot(), func(c *cobra.Command) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".8"
		page, written := got[name]
		switch {
		case written == c.Hidden:
			t.Errorf("%s: written %t, hidden %t", name, written, c.Hidden)
		case written && (!strings.Contains(page, ".SH EXAMPLE") || !strings.Contains(page, `.TH "KUBE-IPVS" "8"`)):
			t.Errorf("%s has no example, or is of no section:\n%s", name, page)
		}
	})
	// A list stays one: it is in a block that is not filled.
	if _, list, _ := strings.Cut(got["kube-ipvs-trace.8"], ".EX\n"); !strings.HasPrefix(list, "arrived    the packet arrived") || !strings.Contains(list, "\nuntouched  it left again") {
		t.Errorf("the stations of trace(8) are not a list:\n%s", got["kube-ipvs-trace.8"])
	}
	if text := got["kube-ipvs-check.8"]; !strings.Contains(text, "are loaded and stay loaded") {
		t.Errorf("check(8) does not say what help says:\n%s", text)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range shells {
		if out := execute(t, "completion", shell); !strings.Contains(out, "kube-ipvs") || len(out) < 1000 {
			t.Errorf("%s: no script:\n%s", shell, out)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}, {"completion", "bash", "zsh"}} {
		if _, err := try(args...); err == nil || !strings.Contains(err.Error(), "bash, zsh, fish, powershell") {
			t.Errorf("%v: error %v", args, err)
		}
	}
	// The requests that completion scripts send while a user types.
	got := strings.Split(execute(t, cobra.ShellCompNoDescRequestCmd, "com"), "\n")
	if !slices.Contains(got, "completion") {
		t.Errorf("com is completed by %q", got)
	}
}

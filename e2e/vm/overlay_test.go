package vm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bash runs a script text with the shell the guest has.
func bash(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("bash", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("bash: %v: %s\nscript:\n%s", err, out, script)
	}
	return string(out)
}

func TestCommandArrivesAsGiven(t *testing.T) {
	words := []string{"printf", "[%s]", "two words", "it's", `"quoted"`, "$HOME", "new\nline", "", "*", `back\slash`, "-n"}
	script := guestCommand(Options{Command: words})
	if got, want := bash(t, script), "["+strings.Join(words[2:], "][")+"]"; got != want {
		t.Errorf("arguments arrived as %q, want %q", got, want)
	}
}

func TestCommandEnvironment(t *testing.T) {
	script := guestCommand(Options{Command: []string{"printenv", "KUBE_IPVS_WHERE", "A", "B"}, Env: []string{"A=x=$HOME 'y'", "B="}})
	if got, want := bash(t, script), "vm\nx=$HOME 'y'\n\n"; got != want {
		t.Errorf("environment %q, want %q", got, want)
	}
}

func TestConfigCanBeSourced(t *testing.T) {
	config := guestConfig(Options{Modules: []string{"ip_vs", "dummy"}, Dir: "/it's here", Shares: []Share{
		{Guest: "/src"}, {Guest: "/run/out", Writable: true},
	}})
	got := bash(t, config+`echo "$MODULES|$KUBE_IPVS_DIR"; while read -r tag type options directory; do
		[ -z "$tag" ] || echo "$tag $directory ${options##*msize=524288,}"; done <<<"$SHARES"`)
	want := "ip_vs dummy|/it's here\nshare0 /src ro,cache=loose\nshare1 /run/out rw,cache=none\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestInitIsAValidScript(t *testing.T) {
	cmd := exec.Command("bash", "-n")
	cmd.Stdin = bytes.NewReader(initScript)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("init.sh: %v: %s", err, out)
	}
}

func TestWriteOverlay(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("code"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{Command: []string{"true"}, IPTables: "legacy", Copies: []Copy{{Host: program, Guest: "/run/bin/p"}}}
	var buffer bytes.Buffer
	if err := writeOverlay(&buffer, o); err != nil {
		t.Fatal(err)
	}
	entries := listArchive(t, buffer.Bytes())
	for _, want := range []string{
		"100755 init " + string(initScript), "40755 run/bin ", "100700 run/bin/p code",
		"120777 usr/sbin/iptables-restore xtables-legacy-multi", "120777 usr/sbin/ip6tables xtables-legacy-multi",
	} {
		if !slices.Contains(entries, want) {
			t.Errorf("no entry %q", want)
		}
	}
	o.Copies[0].Host += ".gone"
	if err := writeOverlay(&buffer, o); err == nil || !strings.Contains(err.Error(), "program.gone") {
		t.Errorf("error = %v, want the missing file named", err)
	}
}

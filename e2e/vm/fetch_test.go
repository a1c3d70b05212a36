package vm

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseKernelPackages(t *testing.T) {
	tests := []struct {
		name, file string
		want       []string
	}{
		{name: "Debian", file: "apt-debian.txt", want: []string{"linux-image-6.1.0-56-amd64"}},
		{name: "Debian 14 splits the image off", file: "apt-debian-14.txt", want: []string{
			"linux-image-7.2.13+deb14-amd64", "linux-base-7.2.13+deb14-amd64", "linux-binary-7.2.13+deb14-amd64", "linux-modules-7.2.13+deb14-amd64",
		}},
		{name: "Ubuntu splits modules off", file: "apt-ubuntu.txt", want: []string{
			"linux-image-6.8.0-88-generic", "linux-modules-extra-6.8.0-88-generic", "linux-modules-6.8.0-88-generic",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", tt.file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, parseKernelPackages(string(text))); diff != "" {
				t.Errorf("packages (-want +got):\n%s", diff)
			}
		})
	}
}

// fakeDistribution puts stand-ins for the package tools first in PATH. They work on files in the
// returned directory: "lists" exists once the package lists were read, "served" if the mirror has
// the package, and "log" has the requests.
func fakeDistribution(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	t.Setenv("STATE", state)
	t.Setenv("PATH", state+":"+os.Getenv("PATH"))
	tools := map[string]string{
		"apt-cache": `[ -e $STATE/lists ] && [ "${*: -1}" = linux-image-amd64 ] && echo "  Depends: linux-image-6.1.0-1-amd64"`,
		"apt-get": `echo "apt-get ${*: -1}" >>$STATE/log
			case "$*" in
			*update) touch $STATE/lists $STATE/served ;;
			*) [ -e $STATE/served ] || { echo "E: 404 Not Found" >&2; exit 100; }; echo deb >linux-image.deb ;;
			esac`,
		"dpkg":   `echo "dpkg $1 ${2##*/}" >>$STATE/log; mkdir -p $3/usr/lib/modules/6.1.0-1-amd64`,
		"depmod": `echo "depmod $3" >>$STATE/log`,
	}
	for name, script := range tools {
		if err := os.WriteFile(filepath.Join(state, name), []byte("#!/bin/bash\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return state
}

func TestFetchKernel(t *testing.T) {
	const get, update, unpacked = "apt-get linux-image-6.1.0-1-amd64\n", "apt-get update\n", "dpkg -x linux-image.deb\ndepmod 6.1.0-1-amd64\n"
	tests := []struct {
		name  string
		state []string
		want  string
	}{
		{name: "all is there", state: []string{"lists", "served"}, want: get + unpacked},
		{name: "no package lists", want: update + get + unpacked},
		{name: "old package lists", state: []string{"lists"}, want: get + update + get + unpacked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state := fakeDistribution(t)
			for _, name := range tt.state {
				writeFiles(t, state, map[string]string{name: ""})
			}
			dir := filepath.Join(t.TempDir(), "kernel")
			if err := fetchKernel(t.Context(), "", dir, newProgress(io.Discard)); err != nil {
				t.Fatal(err)
			}
			log, err := os.ReadFile(filepath.Join(state, "log"))
			if diff := cmp.Diff(tt.want, string(log)); err != nil || diff != "" {
				t.Errorf("asked of the tools, %v (-want +got):\n%s", err, diff)
			}
			if !exists(filepath.Join(dir, "lib/modules/6.1.0-1-amd64")) {
				t.Error("the modules of a package that has only usr/lib are not below lib")
			}
		})
	}
}

func TestFetchKernelReportsWhatTheToolSaid(t *testing.T) {
	state := fakeDistribution(t)
	writeFiles(t, state, map[string]string{"lists": ""})
	refuse := "#!/bin/bash\necho 'E: no network' >&2; exit 100\n"
	if err := os.WriteFile(filepath.Join(state, "apt-get"), []byte(refuse), 0o755); err != nil {
		t.Fatal(err)
	}
	err := fetchKernel(t.Context(), "", filepath.Join(t.TempDir(), "kernel"), newProgress(io.Discard))
	if err == nil || !strings.Contains(err.Error(), "E: no network") {
		t.Errorf("error = %v, want what apt-get said", err)
	}
}

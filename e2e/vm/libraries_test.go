package vm

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLibraries(t *testing.T) {
	text, err := os.ReadFile("testdata/ldd.txt")
	if err != nil {
		t.Fatal(err)
	}
	answer := func(text string, err error) func(context.Context, []string) (string, error) {
		return func(context.Context, []string) (string, error) { return text, err }
	}
	got, err := libraries(t.Context(), []string{"/usr/bin/curl"}, answer(string(text), nil))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libxtables.so.12", "/lib64/ld-linux-x86-64.so.2", "/opt/my libs/libodd.so",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("libraries (-want +got):\n%s", diff)
	}

	_, err = libraries(t.Context(), nil, answer(string(text)+"\tlibgone.so.1 => not found\n", nil))
	if err == nil || !strings.Contains(err.Error(), "libgone.so.1") {
		t.Errorf("error = %v, want the missing library named", err)
	}
	broken := errors.New("no ldd")
	if _, err := libraries(t.Context(), nil, answer("", broken)); !errors.Is(err, broken) {
		t.Errorf("error = %v, want %v", err, broken)
	}
}

func TestRunLddAnswersInSpiteOfScripts(t *testing.T) {
	script := t.TempDir() + "/script"
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	shell, ok := lookTool("bash")
	if !ok {
		t.Skip("no bash on this machine to ask about")
	}
	text, err := runLdd(t.Context(), []string{script, shell})
	if err != nil || !strings.Contains(text, "libc.so") {
		t.Errorf("runLdd = %q, %v, want the libraries of bash", text, err)
	}
}

func TestFindTools(t *testing.T) {
	look := func(name string) (string, bool) { return "/usr/bin/" + name, strings.HasPrefix(name, "have") }
	got, err := findTools([]string{"have1", "have2"}, []string{"lack1", "have3"}, look)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr/bin/have1", "/usr/bin/have2", "/usr/bin/have3"}, got); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	_, err = findTools([]string{"lack1", "have1", "lack2"}, nil, look)
	if err == nil || !strings.Contains(err.Error(), "lack1 lack2 (run e2e/install.sh vm)") {
		t.Errorf("error = %v, want all missing tools and the remedy", err)
	}
}

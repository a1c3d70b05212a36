package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// logged is what a log has on standard error.
func logged(t *testing.T, format string, use func(*logging)) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := os.Stderr
	os.Stderr = w
	l, err := newLogger(config.Config{Runtime: config.Runtime{LogLevel: "info", LogFormat: format}})
	os.Stderr = before
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(r)
		all <- text
	}()
	use(l)
	l.sink.Close()
	w.Close()
	return string(<-all)
}

// obeyed finds what a terminal would obey in a text.
func obeyed(text string) int {
	return strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' })
}

// TestStrangersCannotSpeakThroughTheLog: names from manifests and error texts have control characters
// escaped, a line stays a line, and JSON stays JSON.
func TestStrangersCannotSpeakThroughTheLog(t *testing.T) {
	const evil = "a\x1b[31m\u009b2J\x7f\u202e\U000e0001"
	for _, format := range []string{"json", "text"} {
		text := logged(t, format, func(l *logging) { l.Warn("from "+evil, zap.String("name", evil+"\nforged")) })
		if at := obeyed(text); at >= 0 || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: %q has what a terminal obeys at %d", format, text, at)
		}
		if format == "json" {
			var line struct{ Name string }
			if err := json.Unmarshal([]byte(text), &line); err != nil || line.Name != evil+"\nforged" {
				t.Errorf("read %q, error %v", line.Name, err)
			}
		}
	}
}

// TestSameLinesAreBounded: of many lines with the same message the first come out, and the rest is counted.
func TestSameLinesAreBounded(t *testing.T) {
	var missing uint64
	text := logged(t, "text", func(l *logging) {
		for i := range 4 * sameLines {
			l.Info("a Service is strange", zap.Int("service", i))
		}
		l.Info("another line")
		missing = l.dropped()["repeated"]
	})
	if n := uint64(strings.Count(text, "a Service is strange")); n < sameLines || n+missing != 4*sameLines || !strings.Contains(text, "another line") {
		t.Errorf("%d lines came out, and %d are missing", n, missing)
	}
}

// TestSettingsAreLogged: the log has the settings without effect, and the flags that outrank the file.
func TestSettingsAreLogged(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(core)
	logSettings(log, config.Loaded{})
	if logs.Len() > 0 {
		t.Errorf("lines %v without a reason", logs.All())
	}
	logSettings(log, config.Loaded{Warnings: []string{"a: unknown field", "b"}, Overrides: []string{"--x", "--y"}, Config: config.Config{Invocation: config.Invocation{ConfigFile: "/f"}}})
	var got []string
	for _, l := range logs.All() {
		got = append(got, fmt.Sprint(l.Level, " ", l.Message, " ", l.ContextMap()))
	}
	want := []string{
		"warn configuration: a: unknown field map[]", "warn configuration: b map[]",
		"info flags win over the configuration file map[file:/f flags:[--x --y]]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

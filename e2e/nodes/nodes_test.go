package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestInstallManifestCanBeEdited: the values that a cluster sets are in the manifest as the comments there have them.
func TestInstallManifestCanBeEdited(t *testing.T) {
	text, err := os.ReadFile("../../manifests/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := edited(string(text), "https://control-plane.invalid:6443", "https://172.30.0.1:1", `clusterCIDR: ""`, "clusterCIDR: 10.244.0.0/16", "scheduler: rr", "scheduler: wlc",
		"# vipBinding: address", "vipBinding: route # address")
	if err != nil || strings.Contains(got, "invalid") || !strings.Contains(got, "scheduler: wlc") {
		t.Errorf("edited: %v\n%s", err, got)
	}
	if _, err := edited("mode: ipvs", "scheduler: rr", "scheduler: wlc"); err == nil {
		t.Error("a text that is not there is replaced")
	}
}

// TestAnswers: only a tally without failures counts as answered.
func TestAnswers(t *testing.T) {
	for log, want := range map[string]bool{
		"7 requests, 7 answered, 0 failed\n  backend web 7": true,
		"7 requests, 6 answered, 1 failed\n":                false,
		"0 requests, 0 answered, 0 failed\n":                false,
		"":                                                  false,
		"unable to retrieve container logs":                 false,
	} {
		if n, ok := answers(log); ok != want || ok && n != 7 {
			t.Errorf("%q: %d answered, %t, want %t", log, n, ok, want)
		}
	}
}

// TestAnsweredBy: the names are those of lines about backends.
func TestAnsweredBy(t *testing.T) {
	got := answeredBy("2 requests, 2 answered, 0 failed\n  backend  node1  1  ###\n  backend  node2  1  ###\n  client   10.0.0.1  2  ######\n")
	if len(got) != 2 || !got["node1"] || !got["node2"] {
		t.Errorf("%v", got)
	}
}

// TestNamedOnTheFirstScreen: the node and the words stand in one line, among the first of the output.
func TestNamedOnTheFirstScreen(t *testing.T) {
	const line = "node3: the kernel lacks 1 row of servers\n"
	for text, want := range map[string]bool{
		line: true, strings.Repeat("\n", screenLines-1) + line: true, strings.Repeat("\n", screenLines) + line: false, "node3\nthe kernel lacks\n": false, "": false,
	} {
		if got := names(firstScreen(text), "node3", "the kernel lacks"); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

// TestReport: a failed check fails the run, its whole text is one line of bounded length, and what was not run is no success.
func TestReport(t *testing.T) {
	r := &report{rows: []row{{name: "a", result: passed, took: 2 * time.Second, note: "fine"}}}
	if r.failed() {
		t.Error("a run without failures failed")
	}
	var out bytes.Buffer
	r.rows = append(r.rows, row{name: "b", result: failed, note: strings.Repeat("long\n", 100)})
	r.print(&out)
	if !r.failed() || strings.Count(out.String(), "\n") != 4 || !strings.Contains(out.String(), "a     ok      2 s   fine") {
		t.Errorf("failed %t:\n%s", r.failed(), out.String())
	}
	if r.rows = []row{{name: "c", result: "not run"}}; !r.failed() {
		t.Error("a check that was not run is a success")
	}
	if r.rows = []row{{name: "d", result: skipped}}; r.failed() {
		t.Error("a check that needs more nodes failed")
	}
}

// TestOneCheckFails: the error becomes the note.
func TestOneCheckFails(t *testing.T) {
	w := &world{out: io.Discard}
	got := w.one(t.Context(), check{name: "x", run: nothing})
	if got.result != failed || got.note != "nothing there" {
		t.Errorf("%+v", got)
	}
	got = w.one(t.Context(), check{name: "y", run: func(context.Context, *world) (string, error) { return "", needsNodes(3) }})
	if got.result != skipped || got.note != "needs 3 nodes" {
		t.Errorf("%+v", got)
	}
}

// TestWriteImage: the archive names the image, and its layer has the program where the configuration starts it.
func TestWriteImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pause.tar")
	if err := writeImage(path, "localhost/pause:e2e", "pause", []byte("program")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, text)
	var manifest []struct{ RepoTags, Layers []string }
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil || manifest[0].RepoTags[0] != "localhost/pause:e2e" {
		t.Errorf("manifest %s: %v", files["manifest.json"], err)
	}
	if layer := unpacked(t, files[manifest[0].Layers[0]]); string(layer["pause"]) != "program" || !strings.Contains(string(files["config.json"]), `"/pause"`) {
		t.Errorf("layer %q, configuration %s", layer, files["config.json"])
	}
}

func unpacked(t *testing.T, text []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRoom: a cluster that cannot fit is refused with both figures.
func TestRoom(t *testing.T) {
	if err := room(1); err != nil {
		t.Errorf("one MiB: %v", err)
	}
	if err := room(1 << 40); err == nil || !strings.Contains(err.Error(), "MiB of memory") {
		t.Errorf("more than there is: %v", err)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-nodes", "2", "-run", "kubelet"})
	if err != nil || o.nodes != 2 || !o.only.MatchString("kubelet restarts under load") || !filepath.IsAbs(o.dir) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, wrong := range [][]string{{"-nodes", "0"}, {"-nodes", "9"}, {"-run", "("}, {"more"}} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// TestCPUOf: nodes get the CPUs that this program may use, in turn.
func TestCPUOf(t *testing.T) {
	var may unix.CPUSet
	may.Set(1)
	may.Set(3)
	for i, want := range []int{1, 3, 1} {
		if got := cpuOf(i, &may); got != want {
			t.Errorf("node %d is on CPU %d, want %d", i, got, want)
		}
	}
}

// TestLastLines: an error has the end of a log, whole where it is short.
func TestLastLines(t *testing.T) {
	for text, want := range map[string]string{"": "", "a\nb\nc\n": "b\nc", "a": "a"} {
		if got := lastLines(text, 2); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func nothing(context.Context, *world) (string, error) { return "", errors.New("nothing there") }

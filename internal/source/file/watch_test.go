package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zapcore"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
)

const (
	sliceText = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n" +
		"addressType: IPv4\nendpoints:\n- addresses: [10.0.0.1]\n"
	nodeText = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}\n"
)

// TestOnlyDifferencesAreSent: also their order, which never leaves a Service
// without the endpoints it should have.
func TestOnlyDifferencesAreSent(t *testing.T) {
	g := newRig(t, "", quick)
	g.write("a.yaml", service("web", 80)+"---\n"+sliceText+"---\n"+nodeText)
	g.write("b.yaml", service("other", 80))
	g.run().untilState(source.Complete)
	steps := []struct {
		name string
		do   func()
		want []string
	}{
		{"start", func() {}, []string{"set node n1", "set slice default/web-1", "set service default/other", "set service default/web"}},
		{"one object changes", func() { g.write("a.yaml", service("web", 81)+"---\n"+sliceText+"---\n"+nodeText) }, []string{"set service default/web"}},
		{"objects change files, a comment comes", func() {
			g.write("c.yaml", "# moved\n"+service("other", 80))
			g.must(os.Remove(filepath.Join(g.dir, "b.yaml")))
			g.write("z.yaml", service("last", 1))
		}, []string{"set service default/last"}},
		{"a file goes", func() { g.must(os.Remove(filepath.Join(g.dir, "a.yaml"))) },
			[]string{"delete service default/web", "delete slice default/web-1", "delete node n1"}},
		{"all files go", func() {
			g.must(os.Remove(filepath.Join(g.dir, "c.yaml")))
			g.must(os.Remove(filepath.Join(g.dir, "z.yaml")))
		}, []string{"delete service default/other", "delete service default/last"}},
	}
	for _, s := range steps {
		s.do()
		var got []string
		g.until(s.name, func() bool { got = append(got, g.sink.takeCalls()...); return len(got) >= len(s.want) })
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", s.name, diff)
		}
	}
	if got := g.sink.now(); got != source.Complete {
		t.Errorf("state %s after every file was removed, want complete: it was said so", got)
	}
}

// TestSliceLabelledHeadless: the label that comes while a slice is in use takes the
// slice away from its Service, as a watch that selects by label would.
func TestSliceLabelledHeadless(t *testing.T) {
	g := newRig(t, "", quick)
	g.write("a.yaml", sliceText)
	g.run().untilState(source.Complete)
	inUse := g.sink.has("slice default/web-1")
	steps := []struct{ name, text, want string }{
		{"labelled", strings.Replace(sliceText, "labels: {", "labels: {service.kubernetes.io/headless: '', ", 1), "/ 0"},
		{"the label goes", sliceText, "default/web 1"},
	}
	if inUse != "default/web 1" {
		t.Fatalf("at first the slice is %q, want default/web 1", inUse)
	}
	for _, s := range steps {
		g.write("a.yaml", s.text)
		g.until(s.name, func() bool { return g.sink.has("slice default/web-1") == s.want })
	}
}

// TestWaysToReplaceAFile: every way in which programs put a new version in place
// is noticed by the watch alone.
func TestWaysToReplaceAFile(t *testing.T) {
	// inVolume builds the links that a kubelet makes of a ConfigMap.
	inVolume := func(g *rig) {
		g.must(os.Mkdir(filepath.Join(g.dir, "..v1"), 0o700))
		g.write("..v1/web.yaml", service("web", 80))
		g.must(os.Symlink("..v1", filepath.Join(g.dir, "..data")))
		g.must(os.Symlink("..data/web.yaml", filepath.Join(g.dir, "web.yaml")))
	}
	swapVolume := func(g *rig) {
		g.must(os.Mkdir(filepath.Join(g.dir, "..v2"), 0o700))
		g.write("..v2/web.yaml", service("web", 81))
		g.must(os.Symlink("..v2", filepath.Join(g.dir, "..data_tmp")))
		g.must(os.Rename(filepath.Join(g.dir, "..data_tmp"), filepath.Join(g.dir, "..data")))
		g.must(os.RemoveAll(filepath.Join(g.dir, "..v1")))
	}
	plain := func(g *rig) { g.write("web.yaml", service("web", 80)) }
	overwrite := func(g *rig) {
		g.must(os.WriteFile(filepath.Join(g.dir, "web.yaml"), []byte(service("web", 81)), 0o600))
	}
	tests := []struct {
		name, path    string
		setup, change func(g *rig)
	}{
		{"renamed over", "", plain, func(g *rig) { g.write("web.yaml", service("web", 81)) }},
		{"written in place", "", plain, overwrite},
		{"removed and written", "", plain, func(g *rig) { g.must(os.Remove(filepath.Join(g.dir, "web.yaml"))); overwrite(g) }},
		{"ConfigMap volume", "", inVolume, swapVolume},
		{"one file, renamed over", "web.yaml", plain, func(g *rig) { g.write("web.yaml", service("web", 81)) }},
		{"one file, written in place", "web.yaml", plain, overwrite},
		{"one file of a ConfigMap volume", "web.yaml", inVolume, swapVolume},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, tt.path, quick)
			tt.setup(g)
			g.run().untilState(source.Complete)
			tt.change(g)
			g.until("the port is 81", func() bool { return g.sink.has("service default/web") == "[10.96.0.1] [{ tcp 81}]" })
			if p := g.problems(); p != "" {
				t.Errorf("problems: %s", p)
			}
		})
	}
}

// TestManifestsFromAndToNothing: an empty place at the start is no statement that
// nothing exists.
func TestManifestsFromAndToNothing(t *testing.T) {
	g := newRig(t, "", quick)
	g.run().untilState(source.Partial)
	g.until("it is told", func() bool { return g.logs.FilterMessageSnippet("no manifests").Len() == 1 })
	g.write("other.yaml", "apiVersion: apps/v1\nkind: Deployment\n")
	g.until("other kinds are told", func() bool { return g.logs.FilterMessageSnippet("other kinds").Len() == 1 })
	if got := g.sink.now(); got != source.Partial {
		t.Errorf("state %s with other kinds only, want partial", got)
	}
	g.write("web.yaml", service("web", 80))
	g.untilState(source.Complete)
	g.untilHas("service default/web")
}

// TestPathThatGoes: the place itself going is trouble, not a deletion of all that
// was in it. A new one in its place is found by the watch on its parent.
func TestPathThatGoes(t *testing.T) {
	tests := []struct{ name, path, inner string }{
		{"directory", "manifests", "manifests/web.yaml"},
		{"one file", "web.yaml", "web.yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, tt.path, quick)
			outer, away := filepath.Join(g.dir, tt.path), filepath.Join(g.dir, "away")
			build := func(port int) {
				g.must(os.MkdirAll(filepath.Dir(filepath.Join(g.dir, tt.inner)), 0o700))
				g.write(tt.inner, service("web", port))
			}
			g.run().untilState(source.Partial)
			g.until("trouble at the start is told", func() bool { return g.source.Status().Trouble != "" })

			build(80)
			g.untilState(source.Complete)
			g.must(os.Rename(outer, away))
			g.until("trouble is told", func() bool { return strings.Contains(g.source.Status().Trouble, "no such file") })
			if got := g.sink.names(); got != "service default/web" || g.sink.now() != source.Complete {
				t.Errorf("in force %q, state %s; want what was good before", got, g.sink.now())
			}
			if got := g.source.Unreadable(); len(got) != 1 || !strings.HasPrefix(got[0], outer+": ") || !strings.Contains(got[0], "no such file") {
				t.Errorf("unreadable %q, want the path and the reason", got)
			}

			build(81)
			g.until("the new one is read", func() bool { return g.sink.has("service default/web") == "[10.96.0.1] [{ tcp 81}]" })
			g.write(tt.inner, service("web", 82))
			g.until("the new one is watched", func() bool { return g.sink.has("service default/web") == "[10.96.0.1] [{ tcp 82}]" })
			if got := g.source.Unreadable(); len(got) > 0 {
				t.Errorf("unreadable %q after it came back", got)
			}
			if s := g.source.Status(); s.Trouble != "" || s.Objects != 1 || s.Files != 1 || s.State != source.Complete {
				t.Errorf("status %+v, want one object and no trouble", s)
			}
			if n := g.logs.FilterLevelExact(zapcore.ErrorLevel).Len(); n != 2 {
				t.Errorf("%d errors logged, want one each time the path was missing", n)
			}
		})
	}
}

// TestPolling: changes without an event are found by polling, and polling alone
// neither repeats a complaint nor sends anything.
func TestPolling(t *testing.T) {
	g := newRig(t, "", file.Options{Poll: 5 * time.Millisecond, Quiet: time.Millisecond, Patience: time.Millisecond})
	elsewhere := filepath.Join(t.TempDir(), "web.yaml")
	g.must(os.WriteFile(elsewhere, []byte(service("web", 80)), 0o600))
	g.must(os.Symlink(elsewhere, filepath.Join(g.dir, "web.yaml")))
	g.write("bad.yaml", "kind: [")
	g.write("part.yaml", service("part", 70000))
	g.must(os.Symlink("nowhere", filepath.Join(g.dir, "dangling.yaml")))

	var scans int
	reads := make(chan struct{}, 1_000_000)
	g.source.SetReadFile(func(name string) ([]byte, error) {
		reads <- struct{}{}
		return file.ReadFile(name)
	})
	g.run().untilHas("service default/part, service default/web")
	g.sink.takeCalls()
	// Young files are read again at each scan, which shows that scans went on.
	g.until("it has looked often", func() bool { scans = len(reads); return scans > 20 })
	if calls := g.sink.takeCalls(); len(calls) > 0 {
		t.Errorf("calls %v, want none", calls)
	}
	for level, want := range map[zapcore.Level]int{zapcore.ErrorLevel: 2, zapcore.WarnLevel: 1} {
		if got := g.logs.FilterLevelExact(level).Len(); got != want {
			t.Errorf("%d lines of level %s after %d reads, want %d: %v", got, level, scans, want, g.logs.FilterLevelExact(level).All())
		}
	}

	g.must(os.WriteFile(elsewhere, []byte(service("web", 81)), 0o600))
	g.until("the target of the link is read", func() bool { return g.sink.has("service default/web") == "[10.96.0.1] [{ tcp 81}]" })
}

// TestOldFilesAreNotReadAgain: a file whose time can be trusted costs a stat.
func TestOldFilesAreNotReadAgain(t *testing.T) {
	g := newRig(t, "", file.Options{Poll: time.Millisecond})
	g.write("web.yaml", service("web", 80))
	past := time.Now().Add(-time.Hour)
	g.must(os.Chtimes(filepath.Join(g.dir, "web.yaml"), past, past))
	reads := make(chan string, 1_000_000)
	g.source.SetReadFile(func(name string) ([]byte, error) {
		reads <- filepath.Base(name)
		return file.ReadFile(name)
	})
	g.run().untilState(source.Complete)
	// The young file beside it is read at every scan and counts them.
	g.write("young.yaml", service("young", 80))
	g.until("many scans went by", func() bool { return len(reads) > 20 })
	old := 0
	for range len(reads) {
		if <-reads == "web.yaml" {
			old++
		}
	}
	if old != 1 {
		t.Errorf("the old file was read %d times, want once", old)
	}
}

// TestClash: the first file by name has the object, and hands it over.
func TestClash(t *testing.T) {
	g := newRig(t, "", quick)
	g.write("b.yaml", service("web", 82))
	g.run().untilState(source.Complete)
	g.write("c.yaml", service("web", 83))
	g.until("the clash is told", func() bool {
		return g.problems() == "c.yaml: document 1, line 1: Service default/web: defined already in b.yaml (document 1), which is used\n"
	})
	g.write("a.yaml", service("web", 81))
	g.until("the first by name wins", func() bool { return g.sink.has("service default/web") == "[10.96.0.1] [{ tcp 81}]" })
	g.until("both losers are told", func() bool { return strings.Count(g.problems(), "defined already in a.yaml") == 2 })
	g.must(os.Remove(filepath.Join(g.dir, "a.yaml")))
	g.until("the next takes over", func() bool { return g.sink.has("service default/web") == "[10.96.0.1] [{ tcp 82}]" })
	g.must(os.Remove(filepath.Join(g.dir, "b.yaml")))
	g.until("and the last", func() bool { return g.sink.has("service default/web") == "[10.96.0.1] [{ tcp 83}]" })
	g.until("no clash is left", func() bool { return g.problems() == "" })
	for _, call := range g.sink.takeCalls() {
		if strings.HasPrefix(call, "delete") {
			t.Errorf("call %q, want none: the object was there all the time", call)
		}
	}
}

// TestBadFileIsToldOncePerContent: the same bad content put in place again is not
// news, other bad content is.
func TestBadFileIsToldOncePerContent(t *testing.T) {
	g := newRig(t, "", quick)
	told := func() int { return g.logs.FilterLevelExact(zapcore.ErrorLevel).Len() }
	g.write("bad.yaml", "kind: [")
	g.run().until("it is told", func() bool { return told() == 1 })
	g.write("bad.yaml", "kind: [")
	g.write("web.yaml", service("web", 80))
	g.untilHas("service default/web")
	if told() != 1 {
		t.Errorf("told %d times, want once", told())
	}
	g.write("bad.yaml", "kind: {")
	g.until("the new content is told", func() bool { return told() == 2 })
}

// TestUnreadableFilesAreNamed: one line for each file that was good and is not now, however much is wrong with it.
func TestUnreadableFilesAreNamed(t *testing.T) {
	g := newRig(t, ".", quick)
	for i := range 13 {
		g.write(fmt.Sprintf("%02d.yaml", i), service(fmt.Sprintf("s%d", i), 80))
	}
	g.run().untilState(source.Complete)
	if got := g.source.Unreadable(); len(got) > 0 {
		t.Errorf("unreadable %q where all is good", got)
	}
	for i := range 12 {
		g.write(fmt.Sprintf("%02d.yaml", i), service("none", 80)+"  wrong: 1\n  worse: 2\n")
	}
	g.until("12 files are named", func() bool {
		got := g.source.Unreadable()
		return len(got) == 12 && strings.HasPrefix(got[0], "00.yaml: ") && strings.HasPrefix(got[11], "11.yaml: ")
	})
	if n := len(strings.Split(g.sink.names(), ", ")); n != 13 || g.sink.now() != source.Complete {
		t.Errorf("%d Services in force, state %s; want all 13 as they were", n, g.sink.now())
	}
}

package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// script is one file on its way.
type script struct {
	opts       Options
	driver     Driver
	comparator *Comparator
	work       string
	last       Start // of the agent, for restarts
	async      bool
	base       map[string]uint64 // rows written at the last mark
	// markers counts the Services that settle has put down; see there.
	markers int
	// updates are files of the script with the content to write there.
	updates map[string]string
	path    string
}

var errDifferent = errors.New("not as expected")

// launch starts the agent and waits for its first sync.
func (s *script) launch() error {
	s.base = nil
	if err := s.driver.Start(s.last); err != nil || s.async {
		return err
	}
	return s.await(s.ready)
}

func (s *script) ready() error {
	status, err := s.status()
	if err == nil && !status.Ready {
		err = fmt.Errorf("the agent is not ready: %s", status.LastError)
	}
	return err
}

func (s *script) status() (agent.Status, error) {
	_, deadline := s.driver.Pace()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	return s.driver.Status(ctx)
}

// await asks until there is no error or the driver's deadline has passed, and
// returns the last one. It rests for as long as a question took: at least half of
// the time belongs to the agent.
func (s *script) await(ask func() error) error {
	interval, deadline := s.driver.Pace()
	for until := time.Now().Add(deadline); ; {
		began := time.Now()
		err := ask()
		if err == nil || time.Now().After(until) {
			return err
		}
		time.Sleep(max(interval, time.Since(began)))
	}
}

// settle returns when everything that was on disk before it has been written.
//
// To learn that the agent has seen a file, it writes a Service of type ExternalName, which has no
// rows. Then it waits for the log line about the skipped one. The source may deliver one reading
// of the disk in two batches; a second marker, put down after the first was seen, comes with a
// later reading.
func (s *script) settle() error {
	if s.opts.Rough {
		return nil
	}
	for range 2 {
		if err := s.putMarker(); err != nil {
			return err
		}
	}
	return s.await(s.quiet)
}

func (s *script) putMarker() error {
	s.markers++
	name := fmt.Sprintf("settle-%d", s.markers)
	text := "apiVersion: v1\nkind: Service\nmetadata: {namespace: kube-ipvs-scenario, name: " + name + "}\n" +
		"spec: {type: ExternalName, externalName: example.com}\n"
	if err := replaceFile(filepath.Join(s.work, "manifests", "zz-settle.yaml"), text); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	return s.await(func() error {
		if !strings.Contains(s.driver.Log(), "kube-ipvs-scenario/"+name+`"`) {
			return fmt.Errorf("settle: the agent did not see the Service %s", name)
		}
		return nil
	})
}

// replaceFile writes beside the file, under a hidden name, and renames.
func replaceFile(path, text string) error {
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(hidden, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(hidden, path)
}

// quiet reports whether the agent has nothing left to write.
func (s *script) quiet() error {
	status, err := s.status()
	if err != nil {
		return err
	}
	return Quiet(status)
}

// rewrite notes what is there as the new content of a file of the script, once
// it has not changed for a while.
func (s *script) rewrite(ts *testscript.TestScript, file string, look func() (string, error)) error {
	interval, _ := s.driver.Pace()
	calm, last := 0, ""
	for calm < 100 {
		text, err := look()
		if err != nil {
			return err
		}
		if calm++; text != last {
			calm, last = 0, text
		}
		time.Sleep(interval)
	}
	for _, f := range s.opts.Files {
		if strings.TrimSuffix(filepath.Base(f), ".txtar") == ts.Name() {
			s.path = f
		}
	}
	if s.updates == nil {
		s.updates = map[string]string{}
	}
	s.updates[file] = last
	return nil
}

// close ends the agent and writes what is to be updated.
func (s *script) close() {
	s.driver.Close()
	if len(s.updates) == 0 {
		return
	}
	if err := updateFile(s.path, s.updates); err != nil {
		fmt.Fprintln(os.Stderr, "update scenario:", err)
	}
}

func updateFile(path string, updates map[string]string) error {
	a, err := txtar.ParseFile(path)
	if err != nil {
		return err
	}
	for i, f := range a.Files {
		if text, ok := updates[f.Name]; ok {
			a.Files[i].Data = []byte(text)
			delete(updates, f.Name)
		}
	}
	for name, text := range updates {
		a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(text)})
	}
	return os.WriteFile(path, txtar.Format(a), 0o644)
}

// tail is the end of the agent's log, printed with a failure.
func (s *script) tail() string {
	all := lines(s.driver.Log())
	return "agent's log:\n" + strings.Join(all[max(0, len(all)-25):], "\n")
}

func lines(text string) []string {
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

package sysctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"
)

const journalName = "sysctls.json"

// entry has two values of a key: the one before the first change ever, and the last one that we
// set.
type entry struct {
	Old  string `json:"old"`
	Ours string `json:"ours"`
}

// journal is the file that lets a later process, or cleanup, put values back.
// It is written whole and by rename, so a crash leaves the old or the new one.
type journal struct {
	path    string
	entries map[string]entry
	// unread is why the file could not be read, as when a process has no file descriptor
	// left: it is left as it is, for it may be whole.
	unread error
}

// openJournal reads the journal. One that makes no sense is moved aside, never overwritten: a
// person may still make sense of it. The note tells it; it is also in the log, since no result can
// carry it when nothing is to be changed.
func (h *Handle) openJournal() (*journal, string) {
	j := &journal{path: filepath.Join(h.runDir, journalName), entries: map[string]entry{}}
	b, err := os.ReadFile(j.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		h.unreadable("")
		return j, ""
	case err != nil:
		j.unread = fmt.Errorf("the journal of sysctls cannot be read and is kept: %w", err)
		return j, h.unreadable(j.unread.Error())
	}
	if err = json.Unmarshal(b, &j.entries); err == nil && j.entries != nil {
		h.unreadable("")
		return j, ""
	}
	j.entries = map[string]entry{}
	aside := j.path + ".bad"
	note := fmt.Sprintf("an unreadable journal of sysctls was moved to %s: %v", aside, err)
	if moveErr := os.Rename(j.path, aside); moveErr != nil {
		j.unread = fmt.Errorf("the journal of sysctls can be neither read nor moved: %w; %w", err, moveErr)
		note = j.unread.Error()
	}
	return j, h.unreadable(note)
}

// unreadable notes what is wrong with the journal, nothing if all is well with it, and
// warns of it once. It returns the note.
func (h *Handle) unreadable(note string) string {
	if note != "" && note != h.journal {
		h.log.Warn("journal of sysctls is unreadable", zap.String("note", note))
	}
	h.journal = note
	return note
}

// remember notes a change that is about to be made. The function returned takes
// the note back, for a change that was not made.
func (j *journal) remember(key, old, ours string) (undo func(), err error) {
	before, known := j.entries[key]
	e := entry{Old: old, Ours: ours}
	if known {
		e.Old = before.Old
	}
	if known && e == before {
		return func() {}, nil
	}
	putBack := func() {
		delete(j.entries, key)
		if known {
			j.entries[key] = before
		}
	}
	j.entries[key] = e
	if err := j.save(); err != nil {
		putBack()
		return func() {}, err
	}
	// A note that stays matters only if the operator sets the refused value.
	return func() { putBack(); _ = j.close() }, nil
}

func (j *journal) forget(key string) { delete(j.entries, key) }

// keys returns the keys in a fixed order.
func (j *journal) keys() []string { return slices.Sorted(maps.Keys(j.entries)) }

// close writes what is left, or removes the file if nothing is.
func (j *journal) close() error {
	if len(j.entries) > 0 || j.unread != nil {
		return j.save()
	}
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the journal of sysctls: %w", err)
	}
	return nil
}

func (j *journal) save() error {
	if j.unread != nil {
		return j.unread
	}
	b, err := json.MarshalIndent(j.entries, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the journal of sysctls: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(j.path), 0o755); err != nil {
		return fmt.Errorf("create the run directory: %w", err)
	}
	if err := replaceFile(j.path, append(b, '\n')); err != nil {
		return fmt.Errorf("write the journal of sysctls: %w", err)
	}
	return nil
}

// replaceFile puts content in place of a file in one step.
func replaceFile(path string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

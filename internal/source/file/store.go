package file

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// maxAttempts bounds how often a scan starts again because files moved under it.
const maxAttempts = 3

// known is the stored state of one file.
type known struct {
	stamp stamp
	// good is the last good content; it stays in force while faults are there.
	good     content
	everGood bool
	// faults say why the file as it is now is not used.
	faults []Problem
}

// store holds the content of all files and brings it up to date.
type store struct {
	log        *zap.Logger
	path       string
	dirScanner dirScanner
	files      map[string]*known
	registry   *registry
	// everSeen: some file has defined an object of ours. An empty directory is then intended, and
	// not a volume that is not mounted yet.
	everSeen bool
	// clashed are the clashes that have been logged.
	clashed []Problem
}

func newStore(log *zap.Logger, path string) *store {
	return &store{log: log, path: path, dirScanner: realDisk(), files: map[string]*known{}, registry: newRegistry()}
}

// refresh reads what changed. An error means that the files could not be listed; everything stays
// as it was then. changed reports whether any visible state differs.
func (s *store) refresh() (changed bool, err error) {
	readings, err := s.scan()
	if err != nil {
		return false, err
	}
	present := make(map[string]bool, len(readings))
	var fresh []reading
	var texts []text
	for _, r := range readings {
		present[r.name] = true
		switch {
		case r.err != nil:
			changed = s.unreadable(r.name, r.err) || changed
		case r.unchanged:
			s.unchanged(r)
		default:
			fresh = append(fresh, r)
			texts = append(texts, r.text)
		}
	}
	for i, c := range parse(texts) {
		s.update(fresh[i], c)
	}
	gone := s.forget(present)
	return changed || gone || len(fresh) > 0, nil
}

// scan lists and reads. A file that moved meanwhile makes it start again: a file that
// was listed may have been renamed, which must not look like a deletion.
func (s *store) scan() ([]reading, error) {
	for attempt := 1; ; attempt++ {
		dir, names, err := s.dirScanner.manifests(s.path)
		if err != nil {
			return nil, err
		}
		readings := make([]reading, len(names))
		parallel(len(names), func(i int) {
			var before stamp
			if k := s.files[names[i]]; k != nil {
				before = k.stamp
			}
			readings[i] = s.dirScanner.look(dir, names[i], before)
		})
		moved := slices.ContainsFunc(readings, func(r reading) bool { return errors.Is(r.err, errMoved) })
		if !moved || attempt == maxAttempts {
			return readings, nil
		}
	}
}

func (s *store) file(name string) *known {
	if s.files[name] == nil {
		s.files[name] = &known{}
	}
	return s.files[name]
}

// unreadable keeps what we have of a file. Its stamp goes, so that it is read
// again however it comes back.
func (s *store) unreadable(name string, err error) (changed bool) {
	k := s.file(name)
	faults := []Problem{{File: name, Reason: err.Error(), BadFile: true}}
	changed = !slices.Equal(k.faults, faults)
	k.stamp, k.faults = stamp{}, faults
	if changed {
		s.logBad(name, k)
	}
	return changed
}

func (s *store) unchanged(r reading) { s.files[r.name].stamp = r.stamp }

// update takes over new content. If it is bad only the faults are noted.
func (s *store) update(r reading, c content) {
	k := s.file(r.name)
	k.stamp, k.faults = r.stamp, c.faults
	if len(c.faults) > 0 {
		s.logBad(r.name, k)
		return
	}
	s.registry.replace(r.name, k.good.objects, c.objects)
	k.good, k.everGood = c, true
	s.everSeen = s.everSeen || len(c.objects) > 0
	s.logGood(r.name, c)
}

// forget drops the files that are no longer there, with their objects.
func (s *store) forget(present map[string]bool) (gone bool) {
	for name, k := range s.files {
		if present[name] {
			continue
		}
		s.registry.replace(name, k.good.objects, nil)
		delete(s.files, name)
		s.log.Info("manifest removed", zap.String("file", name), zap.Int("objects", len(k.good.objects)))
		gone = true
	}
	return gone
}

// complete reports whether all existing files have been delivered.
func (s *store) complete() bool {
	for _, k := range s.files {
		if !k.everGood {
			return false
		}
	}
	return s.everSeen
}

// problems lists everything wrong, sorted by file and place.
func (s *store) problems() []Problem {
	out := s.registry.clashes()
	for _, k := range s.files {
		out = append(out, k.faults...)
		out = append(out, k.good.notes...)
	}
	slices.SortFunc(out, compareProblems)
	return out
}

func (s *store) logBad(name string, k *known) {
	s.log.Error("manifest not usable", zap.String("file", name),
		zap.Strings("reason", reasons(k.faults)), zap.Int("kept", len(k.good.objects)))
}

func (s *store) logGood(name string, c content) {
	s.log.Debug("manifest read", zap.String("file", name), zap.Int("objects", len(c.objects)))
	if len(c.notes) > 0 {
		s.log.Warn("manifest has fields that are not used", zap.String("file", name), zap.Strings("reason", reasons(c.notes)))
	}
	if len(c.foreign) > 0 {
		s.log.Info("manifest has other kinds, ignored", zap.String("file", name), zap.Strings("reason", kinds(c.foreign)))
	}
}

// logClashes reports what is new among the objects that lost to another file.
func (s *store) logClashes() {
	now := s.registry.clashes()
	slices.SortFunc(now, compareProblems)
	for _, p := range now {
		if _, told := slices.BinarySearchFunc(s.clashed, p, compareProblems); !told {
			s.log.Warn("object defined twice", zap.String("file", p.File), zap.String("reason", p.String()))
		}
	}
	s.clashed = now
}

// kinds prints "3 apps/v1 Deployment" for each.
func kinds(counts map[string]int) []string {
	var out []string
	for name, n := range counts {
		out = append(out, fmt.Sprintf("%d %s", n, name))
	}
	slices.SortFunc(out, strings.Compare)
	return out
}

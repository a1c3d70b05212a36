package randomops

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
)

// Script writes a walk as a scenario file that does the same. The comment is for its head.
func Script(w Walk, comment string) []byte {
	s := script{state: w.begin()}
	for line := range strings.Lines(comment) {
		s.say("# " + strings.TrimRight(line, "\n"))
	}
	s.say("host", firstAddress)
	if w.Foreign {
		s.foreign()
		s.say("foreign")
	}
	s.files = append(s.files, txtar.File{Name: "manifests/" + anchorFile, Data: []byte(anchor)})
	s.start(w.Flags)
	for _, o := range w.feasible() {
		s.add(o)
		if o.Verb == Damage && w.Foreign && flushes(o.Args) {
			s.foreign()
		}
		s.state.follow(o)
	}
	return txtar.Format(&txtar.Archive{Comment: []byte(s.steps.String()), Files: s.files})
}

type script struct {
	state *state
	steps strings.Builder
	files []txtar.File
}

func (s *script) say(words ...string) { s.steps.WriteString(strings.Join(words, " ") + "\n") }

func (s *script) foreign() {
	for _, line := range foreign {
		s.say("damage", line)
	}
}

func (s *script) start(flags []string) {
	s.say(append([]string{"start", "-audit", "-async"}, flags...)...)
}

func (s *script) add(o Operation) {
	switch o.Verb {
	case Put:
		s.put(o.Args[0], o.Text)
	case Spoil:
		s.put(o.Args[0], spoilt)
	case Remove:
		s.say("rm", "manifests/"+o.Args[0])
	case Stop:
		s.say("terminate")
		s.start(o.Args)
	case Kill:
		s.say("terminate -9")
		s.start(o.Args)
	case Quiet:
		s.say("heal")
		for _, name := range s.state.bad() {
			s.say("rm", "manifests/"+name)
		}
		s.say("agree")
	default: // the steps have the same words
		s.say(o.String())
	}
}

// put keeps a manifest's text among the files of the scenario.
func (s *script) put(name, text string) {
	file := fmt.Sprintf("%d-%s", len(s.files), name)
	s.files = append(s.files, txtar.File{Name: file, Data: []byte(text)})
	s.say("put", file, "manifests/"+name)
}

package top

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Screen is the displayed state, and the keys that were pressed. It is a value: each step returns
// the next one.
type Screen struct {
	// Every is the time between two samples, for people to read.
	Every time.Duration
	Sort  Sort
	// Namespace leaves out the Services of others; empty is all.
	Namespace string
	// Detail is the label of the Service whose backends are shown; empty is none.
	Detail string

	width, height int
	all           []Service // of Namespace, sorted
	shown         []Service // those of them that pass the filter
	backends      []Backend // for Detail
	was, is       Sample
	samples       int
	trouble       error
	filter        string
	typing        bool // keys are the filter's
	paused        bool
	chosen        string // label of the line that keys act on
	held          bool   // the user selected the line; otherwise it is the first
	first         int    // the line at the top
}

// Action is what a key requests from the caller that holds the Screen.
type Action int

// The actions.
const (
	Nothing Action = iota
	Quit
)

// Resized is the Screen in a terminal of so many columns and lines.
func (s Screen) Resized(width, height int) Screen {
	s.width, s.height = width, height
	return s.settled()
}

// Sampled takes the next sample, or why there is none.
func (s Screen) Sampled(next Sample, err error) Screen {
	s.trouble = err
	if err != nil || s.paused {
		return s
	}
	s.was, s.is = s.is, next
	s.samples++
	s.trouble = next.troubles()
	return s.counted()
}

// Asks are the servers whose destinations the next sample should have.
func (s Screen) Asks() []vserver.ServerKey {
	i := slices.IndexFunc(s.all, func(o Service) bool { return o.Label() == s.Detail })
	if s.Detail == "" || i < 0 {
		return nil
	}
	return s.all[i].Servers
}

// Paused tells that no samples are wanted.
func (s Screen) Paused() bool { return s.paused }

// counted builds the lines again.
func (s Screen) counted() Screen {
	was := s.was
	if s.samples < 2 {
		was = s.is // nothing is known of what is a second
		was.At = s.is.At.Add(-time.Second)
	}
	s.all = Services(was, s.is)
	if s.Namespace != "" {
		s.all = slices.DeleteFunc(s.all, func(o Service) bool { return o.Namespace != s.Namespace })
	}
	s.backends = nil
	if i := slices.IndexFunc(s.all, func(o Service) bool { return o.Label() == s.Detail }); i >= 0 {
		s.backends = Backends(was, s.is, s.all[i])
	}
	return s.settled()
}

// settled sorts, filters, and keeps the chosen line on the screen.
func (s Screen) settled() Screen {
	s.all, s.backends = slices.Clone(s.all), slices.Clone(s.backends)
	s.Sort.services(s.all)
	s.Sort.backends(s.backends)
	s.shown = filtered(s.all, s.filter)
	at := 0
	if s.held {
		at = max(0, s.at())
	}
	s.chosen = s.label(at)
	room := max(1, s.height-frame)
	s.first = min(s.first, at)
	s.first = max(s.first, at-room+1)
	s.first = max(0, min(s.first, s.lines()-room))
	return s
}

// lines is how many there are, label what names one of them, and at which is chosen.
func (s Screen) lines() int {
	if s.Detail != "" {
		return len(s.backends)
	}
	return len(s.shown)
}

func (s Screen) label(i int) string {
	switch {
	case i < 0 || i >= s.lines():
		return ""
	case s.Detail != "":
		return s.backends[i].Addr.String()
	}
	return s.shown[i].Label()
}

func (s Screen) at() int {
	for i := range s.lines() {
		if s.label(i) == s.chosen {
			return i
		}
	}
	return -1
}

// sortKeys are the keys that sort.
var sortKeys = map[string]Sort{"c": ByConnections, "p": ByPackets, "b": ByBytes, "a": ByActive, "s": BySkew, "n": ByName}

// Key takes a key, by the name that the terminal library has for it.
func (s Screen) Key(key string) (Screen, Action) {
	if key == "ctrl+c" {
		return s, Quit
	}
	if s.typing {
		return s.typed(key), Nothing
	}
	if by, ok := sortKeys[key]; ok {
		s.Sort = by
		return s.settled(), Nothing
	}
	switch key {
	case "q":
		return s, Quit
	case "/":
		s.typing = s.Detail == ""
	case "space":
		s.paused = !s.paused
	case "enter", "right":
		return s.opened(), Nothing
	case "esc", "left", "backspace":
		return s.closed(), Nothing
	default:
		return s.moved(key), Nothing
	}
	return s, Nothing
}

// moved goes to another line.
func (s Screen) moved(key string) Screen {
	page := max(1, s.height-frame)
	to := s.at()
	switch key {
	case "up", "k":
		to--
	case "down", "j":
		to++
	case "pgup":
		to -= page
	case "pgdown":
		to += page
	case "home", "g":
		to = 0
	case "end", "G":
		to = s.lines() - 1
	}
	if to = max(0, min(to, s.lines()-1)); to != s.at() {
		s.chosen, s.held = s.label(to), true
	}
	return s.settled()
}

// opened shows the backends of the chosen Service; the next sample has them.
func (s Screen) opened() Screen {
	if s.Detail == "" && s.chosen != "" {
		s.Detail, s.backends, s.first, s.chosen, s.held = s.chosen, nil, 0, "", false
	}
	return s
}

// closed goes back to the Services, or takes the filter away.
func (s Screen) closed() Screen {
	if s.Detail != "" {
		s.chosen, s.held, s.Detail, s.backends, s.first = s.Detail, true, "", nil, 0
	} else {
		s.filter = ""
	}
	return s.settled()
}

// typed extends the filter by a key.
func (s Screen) typed(key string) Screen {
	switch {
	case key == "enter":
		s.typing = false
	case key == "esc":
		s.typing, s.filter = false, ""
	case key == "backspace" && s.filter != "":
		_, size := utf8.DecodeLastRuneInString(s.filter)
		s.filter = s.filter[:len(s.filter)-size]
	case utf8.RuneCountInString(key) == 1:
		s.filter += key
	}
	return s.settled()
}

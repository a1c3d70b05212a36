package main

import (
	"sync"
	"sync/atomic"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// settings are the settings as they are at the moment.
type settings func() config.Config

// fixed are settings that nobody changes.
func fixed(c config.Config) settings { return func() config.Config { return c } }

// live are settings that change while the agent runs; any goroutine may read them.
type live struct {
	p  atomic.Pointer[config.Config]
	mu sync.Mutex // of who changes them
}

func newLive(c config.Config) *live {
	l := &live{}
	l.set(c)
	return l
}

func (l *live) now() config.Config { return *l.p.Load() }

func (l *live) set(c config.Config) { l.change(func(now *config.Config) { *now = c }) }

// change makes other settings of those in force.
func (l *live) change(f func(*config.Config)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var c config.Config
	if now := l.p.Load(); now != nil {
		c = *now
	}
	f(&c)
	l.p.Store(&c)
}

package main

import (
	"sync/atomic"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// settings are the settings as they are at the moment.
type settings func() config.Config

// fixed are settings that nobody changes.
func fixed(c config.Config) settings { return func() config.Config { return c } }

// live are settings that change while the agent runs. The loop replaces them, between
// two cycles; any goroutine may read them.
type live struct{ p atomic.Pointer[config.Config] }

func newLive(c config.Config) *live {
	l := &live{}
	l.set(c)
	return l
}

func (l *live) now() config.Config { return *l.p.Load() }

func (l *live) set(c config.Config) { l.p.Store(&c) }

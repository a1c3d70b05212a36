package daemon

import (
	"sync"
	"sync/atomic"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// liveConfig holds settings that change while the daemon runs. Any goroutine may read them.
type liveConfig struct {
	p  atomic.Pointer[config.Config]
	mu sync.Mutex // serializes changes
}

func newLiveConfig(c config.Config) *liveConfig {
	l := &liveConfig{}
	l.set(c)
	return l
}

func (l *liveConfig) now() config.Config { return *l.p.Load() }

func (l *liveConfig) set(c config.Config) { l.change(func(now *config.Config) { *now = c }) }

// change replaces the settings by a changed copy of those in force.
func (l *liveConfig) change(f func(*config.Config)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var c config.Config
	if now := l.p.Load(); now != nil {
		c = *now
	}
	f(&c)
	l.p.Store(&c)
}

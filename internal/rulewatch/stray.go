package rulewatch

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// StrayRules removes rules of ours from the backend of iptables that this agent does not use.
// An agent with another --iptables-backend left them, and each packet passes the rules of both
// backends.
type StrayRules struct {
	log  *zap.Logger
	open func(context.Context) ([]*rules.Handle, error)
	// clean has the generation of each backend in which no rule of ours was found.
	clean  map[rules.Backend]uint64
	logged string // the last warning
}

// NewStrayRules returns a remover. open returns handles of the backends that are not in use.
func NewStrayRules(log *zap.Logger, open func(context.Context) ([]*rules.Handle, error)) *StrayRules {
	return &StrayRules{log: log, open: open, clean: map[rules.Backend]uint64{}}
}

// Remove removes all stray rules. It does not read a backend again that no process has written
// to since it was clean. A failure is logged once for each reason, and the next call tries again.
func (s *StrayRules) Remove(ctx context.Context) {
	handles, err := s.open(ctx)
	errs := []error{err}
	for _, h := range handles {
		errs = append(errs, s.purge(ctx, h))
	}
	text := ""
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	if text != "" && text != s.logged {
		s.log.Warn("cannot remove our rules from the other iptables backend, they may still match packets", zap.String("error", text))
	}
	s.logged = text
}

func (s *StrayRules) purge(ctx context.Context, h *rules.Handle) error {
	generation, err := h.Sign(ctx)
	if before, known := s.clean[h.Backend()]; err == nil && known && before == generation {
		return nil
	}
	delete(s.clean, h.Backend())
	found, failed := h.Purge(ctx)
	switch {
	case failed != nil:
		return failed
	case found > 0:
		s.log.Info("our rules in the other iptables backend are removed", zap.String("backend", string(h.Backend())), zap.Int("rows", found))
	case err == nil: // a write in the meantime leaves another generation
		s.clean[h.Backend()] = generation
	}
	return nil
}

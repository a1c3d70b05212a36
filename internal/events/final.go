package events

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// SendFinal sends an Event about the Node when the agent is about to end, and waits until it is
// written or ctx ends: Run sends nothing any more then. It is the only method that waits for the
// API server. A failure is only logged, because the process ends.
func (r *Recorder) SendFinal(ctx context.Context, kind Kind, text string) {
	if r == nil {
		return
	}
	m := message{subject{object{kind: "Node", name: r.node}, kind}, cut(text, maxNote), time.Now()}
	if err := r.api.CreateEvent(ctx, r.event(m, types.UID(m.name))); err != nil {
		r.drop(m, errors.Join(err, context.Cause(ctx)))
		return
	}
	r.log.Debug("event written", zap.String("reason", kind.Reason))
}

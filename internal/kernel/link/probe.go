package link

import (
	"context"
	"errors"

	"go.uber.org/zap"
)

// probeName is the name of the device that Probe makes.
const probeName = "kube-ipvs-probe"

// Probe reports whether the kernel has dummy devices: it makes one, and removes it.
func Probe(ctx context.Context, log *zap.Logger) error {
	h, err := New(log, Options{Name: probeName})
	if err != nil {
		return err
	}
	defer h.Close()
	_, err = h.Ensure(ctx)
	return errors.Join(err, h.Remove(ctx))
}

package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

const (
	oomScoreFile = "proc/self/oom_score_adj"
	// oomTries is the number of attempts to write the score, as in kube-proxy.
	oomTries = 2
)

// SetOOMScore sets how soon the kernel kills this process, before others, when memory runs
// out, from -1000 (never) to 1000 (first). A score that is right is not written.
// The agent runs without it too, so the error is for the log; it names the score
// and the remedy.
func SetOOMScore(ctx context.Context, log *zap.Logger, files procfs.Files, score int) error {
	want := strconv.Itoa(score)
	have, err := files.Get(ctx, oomScoreFile)
	if err == nil && have == want {
		return nil
	}
	for try := 1; try <= oomTries && !errors.Is(err, fs.ErrNotExist); try++ {
		err = files.Put(ctx, oomScoreFile, want, func(now string) bool { return now == want })
		if err == nil {
			log.Info("oom score changed", zap.String("score", want), zap.String("was", have))
			return nil
		}
		log.Debug("oom score refused", zap.Int("attempt", try), zap.Error(err))
	}
	return fmt.Errorf("set oom_score_adj from %q to %s: %w; remedy: %s", have, want, err, oomRemedy(err))
}

func oomRemedy(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "mount /proc"
	}
	return "run privileged or with CAP_SYS_RESOURCE, or ask for a score that is not below the present one"
}

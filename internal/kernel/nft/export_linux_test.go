package nft

import (
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// NewOver is New on sockets of the test's own.
func NewOver(log *zap.Logger, opts Options, open func() (nfnetlink.Socket, error)) *Handle {
	return &Handle{caller: newCaller(log, opts, open)}
}

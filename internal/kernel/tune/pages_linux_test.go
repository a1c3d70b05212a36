package tune_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

func TestSmallPages(t *testing.T) {
	if err := tune.SmallPages(); err != nil {
		t.Fatal(err)
	}
	disabled, err := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if disabled != 1 {
		t.Error("the kernel may use huge pages")
	}
}

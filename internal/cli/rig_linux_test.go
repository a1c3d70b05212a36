package cli

import (
	"os/exec"
	"strings"
	"testing"
)

func tool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "iptables-nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("iptables-nft %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// The help of plan has a pipe that compares its servers with ipvsadm -Sn. It prints nothing where
// the kernel has them all, in whatever order.
func TestPlanAgainstKernel(t *testing.T) {
	if err := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$").Run(); err != nil {
		t.Skipf("skipped: this machine runs the tests by an emulator, and not what they start: %v", err)
	}
	dir := directory(t, map[string]string{"web.yaml": serviceText("web", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]", "") + sliceText("web", "", near)})
	onNode(t, serviceText("web", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]", "")+sliceText("web", "", near), nil, func(n *fakeNode) {
		servers, err := n.servers.ListServers(n.Context())
		must(t, err)
		var kernel strings.Builder
		all := map[vserver.DestinationKey]vserver.Destination{}
		for k := range servers {
			of, err := n.servers.ListDestinations(n.Context(), k)
			must(t, err)
			for d, v := range of {
				all[d] = v
			}
		}
		must(t, vserver.WriteSave(&kernel, servers, all))
		lines := slices.Collect(strings.Lines(kernel.String()))
		slices.Reverse(lines) // the kernel lists them by their hash
		got, err := runPipe(t, dir, strings.Join(lines, ""))
		if err != nil || got != "" {
			t.Errorf("error %v, differences\n%s", err, got)
		}
		if got, err := runPipe(t, dir, strings.Join(lines[1:], "")); err == nil || got == "" {
			t.Errorf("a server that is missing makes no difference: %v, %q", err, got)
		}
	})
}

// runPipe runs the example with programs in place of those of a node.
func runPipe(t *testing.T, manifests, kernel string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	for name, script := range map[string]string{
		"kube-ipvs": "exec env " + asProgram + "=1 '" + os.Args[0] + "' \"$@\"", "hostname": "echo '192.0.2.1 '", "ipvsadm": "cat <<'END'\n" + kernel + "END",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // it is a program
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "-ec", "set -o pipefail; "+strings.Replace(strings.Replace(planAgainstKernel, "--source-dir .", "--source-dir "+manifests, 1), "worker-1", "node-a", 1)) //nolint:noctx // the text ends by itself
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	return string(out), err
}

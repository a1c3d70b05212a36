package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// childVariable marks a process as the first one of new namespaces and tells it what to do there.
const childVariable = "KUBE_IPVS_VM_CHILD"

// childTask travels from the runner to the child.
type childTask struct {
	Probe    Need // try this instead of running a command
	Command  []string
	Env      []string
	Dir      string
	IPTables string
	Binds    []bind
}

// init turns a re-executed program into the child before anything else of it runs. Go cannot fork,
// and namespaces can only be entered by a process with one thread, so the program is started again;
// this works from a test binary, too.
func init() {
	text := os.Getenv(childVariable)
	if text == "" || os.Getpid() != 1 {
		return
	}
	status, err := childMain(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

func childMain(text string) (int, error) {
	var task childTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return StatusBroken, fmt.Errorf("read the task: %w", err)
	}
	if err := os.Unsetenv(childVariable); err != nil {
		return StatusBroken, err
	}
	if err := setUp(task); err != nil {
		return StatusBroken, err
	}
	if task.Probe != "" {
		if err := probes[task.Probe](); err != nil {
			return 1, err
		}
		return 0, nil
	}
	return runAsInit(task)
}

// setUp makes a router node out of empty namespaces, the same that init.sh makes out of a guest.
func setUp(task childTask) error {
	// Shared files are opened while they can still be reached: they may lie under the /run that is about to be hidden.
	sources, err := openAll(task.Binds)
	if err != nil {
		return err
	}
	if err := mountPrivate(); err != nil {
		return err
	}
	for i, b := range task.Binds {
		if err := b.mount(sources[i]); err != nil {
			return err
		}
	}
	// lo first: adding a destination in a namespace whose lo is down is answered with EINVAL.
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("look up lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return writeSysctls()
}

func writeSysctls() error {
	values := map[string]string{
		"net/ipv4/ip_forward":             "1",
		"net/ipv6/conf/all/forwarding":    "1",
		"net/ipv4/conf/all/rp_filter":     "0",
		"net/ipv4/conf/default/rp_filter": "0",
	}
	for name, value := range values {
		err := os.WriteFile("/proc/sys/"+name, []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // no IPv6 on this host: nothing to switch on
			return fmt.Errorf("set sysctl %s: %w", name, err)
		}
	}
	return nil
}

// probes use what the tests will use.
var probes = map[Need]func() error{NeedIPVS: probeIPVS, NeedIPTables: probeIPTables}

// probeIPTables makes links, and in both families a rule of each kind that carries a Service.
func probeIPTables() error {
	for _, link := range []netlink.Link{
		&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "probe0"}, PeerName: "probe1"}, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "probe2"}},
	} {
		if err := netlink.LinkAdd(link); err != nil {
			return fmt.Errorf("this kernel has no %s links: %w", link.Type(), err)
		}
	}
	for _, kind := range []string{"nft", "legacy"} {
		for _, program := range []string{"iptables-" + kind, "ip6tables-" + kind} {
			path, ok := lookTool(program)
			if !ok {
				return fmt.Errorf("this machine has no %s", program)
			}
			cmd := exec.Command(path+"-restore", "--noflush")
			cmd.Stdin = strings.NewReader(probeRules)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s cannot carry a Service in a network namespace: %w: %s", program, err, strings.TrimSpace(string(out)))
			}
		}
	}
	return nil
}

// probeRules have every match and target that iptables mode cannot do without.
const probeRules = `*filter
-A FORWARD -p tcp -m conntrack --ctstate NEW -m comment --comment "probe" -m tcp --dport 1 -j REJECT
COMMIT
*nat
:PROBE - [0:0]
-A PROBE -m statistic --mode random --probability 0.5 -m mark --mark 0x4000/0x4000 -j MARK --set-xmark 0x4000/0x0
-A PROBE -p udp -m recent --set --name PROBE --rsource -m udp -j DNAT --to-destination :1
-A PREROUTING -m addrtype --dst-type LOCAL -j PROBE
-A POSTROUTING -j MASQUERADE
COMMIT
`

// probeIPVS makes a dummy link, and a request to IPVS that needs the right to change it.
func probeIPVS() error {
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "probe0"}}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("this kernel has no dummy links: %w", err)
	}
	family, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		return fmt.Errorf("this kernel has no IPVS: %w", err)
	}
	const getInfo, version = 15, 1 // IPVS_CMD_GET_INFO and IPVS_GENL_VERSION of linux/ip_vs.h
	request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	request.AddData(&nl.Genlmsg{Command: getInfo, Version: version})
	if _, err := request.Execute(unix.NETLINK_GENERIC, 0); err != nil {
		return fmt.Errorf("ask IPVS in a network namespace: %w", err)
	}
	return nil
}

// runAsInit runs the command and, being the first process here, collects orphans. When it returns, the kernel ends whatever is left.
func runAsInit(task childTask) (int, error) {
	if err := linkFlavour(task.IPTables); err != nil {
		return StatusBroken, err
	}
	cmd := exec.Command(task.Command[0], task.Command[1:]...)
	cmd.Env = append(os.Environ(), task.Env...)
	cmd.Dir = task.Dir
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 127, nil // as a shell reports it
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return StatusBroken, fmt.Errorf("wait for the command: %w", err)
		case pid == cmd.Process.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == cmd.Process.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// flavourDir comes first in the command's PATH.
const flavourDir = privateDir + "kube-ipvs-iptables"

// linkFlavour makes the plain iptables names mean the wanted flavour without touching the host's alternatives.
func linkFlavour(flavour string) error {
	path := flavourDir + ":" + os.Getenv("PATH") + ":" + sbinPath
	if err := os.Setenv("PATH", path); err != nil {
		return err
	}
	program, ok := lookTool("xtables-" + flavour + "-multi")
	if !ok {
		return nil // the tests that want iptables will say so
	}
	if err := os.MkdirAll(flavourDir, 0o755); err != nil {
		return err
	}
	for _, name := range iptablesNames() {
		if err := os.Symlink(program, filepath.Join(flavourDir, name)); err != nil {
			return fmt.Errorf("choose iptables %s: %w", strings.TrimSpace(flavour), err)
		}
	}
	return nil
}

package vm

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
)

//go:embed init.sh
var initScript []byte

// configDir holds what a run tells the guest's init.
const configDir = "kube-ipvs"

// writeOverlay writes the archive of one run: init, its configuration, the command, copied files, and the iptables flavour.
func writeOverlay(w io.Writer, o Options) error {
	overlay := newArchive(w)
	overlay.file("init", 0o755, initScript)
	overlay.dir(configDir)
	overlay.file(configDir+"/config", 0o644, []byte(guestConfig(o)))
	overlay.file(configDir+"/command", 0o644, []byte(guestCommand(o)))
	linkIPTables(overlay, o.IPTables)
	for _, file := range o.Copies {
		overlay.parents(file.Guest)
		if err := overlay.hostFile(file.Host, file.Guest); err != nil {
			return fmt.Errorf("copy %s into the guest: %w", file.Host, err)
		}
	}
	return overlay.close()
}

// linkIPTables makes the plain names mean one flavour, as the alternatives of a distribution do. Both flavours stay reachable
// under their full names.
func linkIPTables(overlay *archive, flavour string) {
	for _, name := range iptablesNames() {
		overlay.link("usr/sbin/"+name, "xtables-"+flavour+"-multi")
	}
}

// iptablesNames are the names a distribution's alternatives choose the flavour for.
func iptablesNames() []string {
	var names []string
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			names = append(names, family+verb)
		}
	}
	return names
}

// guestConfig is sourced by init.
func guestConfig(o Options) string {
	var shares strings.Builder
	for i, share := range o.Shares {
		if o.Accel == accelUML {
			shares.WriteString(umlShare(share))
			continue
		}
		// With the loose cache the guest assumes that it is the only writer, which is right for a
		// read-only tree. Files that the guest writes must be on the host when the run ends, so
		// there is no cache then.
		options := "ro,cache=loose"
		if share.Writable {
			options = "rw,cache=none"
		}
		fmt.Fprintf(&shares, "%s 9p trans=virtio,version=9p2000.L,msize=524288,%s %s\n", shareTag(i), options, share.Guest)
	}
	machine := "qemu"
	if o.Accel == accelUML {
		machine = accelUML
	}
	return fmt.Sprintf("MACHINE=%s\nLINK=%s\nMODULES=%s\nSHARES=%s\nKUBE_IPVS_DIR=%s\n",
		machine, quote(o.Link), quote(strings.Join(o.Modules, " ")), quote(shares.String()), quote(o.Dir))
}

// guestCommand is the script that becomes the command.
func guestCommand(o Options) string {
	var script strings.Builder
	for _, kv := range append([]string{"KUBE_IPVS_WHERE=" + string(InVM)}, o.Env...) {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&script, "export %s=%s\n", name, quote(value))
	}
	script.WriteString("exec --")
	for _, word := range o.Command {
		script.WriteString(" " + quote(word))
	}
	return script.String() + "\n"
}

// quote makes one word of a shell out of any text.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func shareTag(i int) string { return fmt.Sprintf("share%d", i) }

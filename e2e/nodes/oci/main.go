// Command oci stands between containerd and crun in a node. Debian's crun refuses the version of the runtime specification that
// containerd 2 writes. The guest's kernel may lack message queues, programs for control groups and limits of CPU time. So oci takes
// these out of the bundle's configuration, and becomes crun.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const crun = "/usr/bin/crun"

func main() {
	err := adapt(os.Args)
	if err == nil {
		err = syscall.Exec(crun, append([]string{"crun"}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "oci:", err)
	os.Exit(1)
}

// adapt rewrites the configuration of the bundle that the arguments name. A call without a bundle rewrites no file.
func adapt(args []string) error {
	at := slices.Index(args, "--bundle")
	if at < 0 || at+1 == len(args) {
		return nil
	}
	path := filepath.Join(args[at+1], "config.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	systems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if text, err = older(text, strings.Contains(string(systems), "mqueue")); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, text, 0o600)
}

// older returns the configuration as crun 1.8 and the guest's kernel take it. Everything else stays as it is.
func older(text []byte, queues bool) ([]byte, error) {
	var config map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // limits have more digits than a float
	if err := d.Decode(&config); err != nil {
		return nil, err
	}
	config["ociVersion"] = "1.0.2"
	if linux, ok := config["linux"].(map[string]any); ok {
		if resources, ok := linux["resources"].(map[string]any); ok {
			delete(resources, "devices")
			if cpu, ok := resources["cpu"].(map[string]any); ok {
				delete(cpu, "quota")
				delete(cpu, "period")
			}
		}
	}
	if mounts, ok := config["mounts"].([]any); ok && !queues {
		config["mounts"] = slices.DeleteFunc(mounts, func(mount any) bool {
			m, _ := mount.(map[string]any)
			return m["type"] == "mqueue"
		})
	}
	return json.Marshal(config)
}

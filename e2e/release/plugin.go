package main

import (
	"bytes"
	"crypto/sha256"
	"debug/macho"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// A platform is one on which an operator runs the plugin of kubectl.
type platform struct{ os, arch string }

// platforms are those of the plugin: Linux on all architectures of a release, and macOS.
func platforms(o options) (out []platform) {
	for _, arch := range o.arches {
		out = append(out, platform{"linux", arch})
	}
	for arch := range machOs {
		if slices.Contains(o.arches, arch) {
			out = append(out, platform{"darwin", arch})
		}
	}
	slices.SortFunc(out, func(a, b platform) int { return strings.Compare(a.os+a.arch, b.os+b.arch) })
	return out
}

// machOs are the architectures of macOS as its files name them.
var machOs = map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}

// pluginName is the name of the archive for a platform, pluginFile that of the program in it.
func pluginName(o options, p platform) string {
	return fmt.Sprintf("kubectl-ipvs_%s_%s_%s.tar.gz", o.version, p.os, p.arch)
}

const pluginFile = "kubectl-ipvs"

// plugins makes the archives of the plugin of kubectl. The archives of the agent are not for krew,
// which refuses the links in them.
func plugins(o options, work string) error {
	for _, p := range platforms(o) {
		program := filepath.Join(work, p.arch, "kube-ipvs") // as the archive of the agent has it
		if p.os != "linux" {
			program = filepath.Join(work, p.os, p.arch, "kube-ipvs")
			if err := compileFor(o, p.os, p.arch, program); err != nil {
				return err
			}
		}
		binary, err := os.ReadFile(filepath.Clean(program))
		if err != nil {
			return err
		}
		license, err := os.ReadFile("LICENSE")
		if err != nil {
			return err
		}
		texts, err := licenses(p.os, p.arch)
		if err != nil {
			return err
		}
		files := []entry{{name: "LICENSE", mode: 0o644, data: license}, {name: "LICENSES.txt", mode: 0o644, data: texts}, {name: pluginFile, mode: 0o755, data: binary}}
		if err := archive(filepath.Join(o.out, pluginName(o, p)), "kubectl-ipvs", o.date, files); err != nil {
			return err
		}
	}
	return writeKrew(o)
}

// krewName is the manifest of the plugin for krew.
const krewName = "ipvs.yaml"

// krew is a manifest of krew (krew.sigs.k8s.io, Plugin v1alpha2).
type krew struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec krewSpec `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string     `json:"uri"`
	SHA256 string     `json:"sha256"`
	Files  []krewFile `json:"files"`
	Bin    string     `json:"bin"`
}

type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

const homepage = "https://github.com/kube-ipvs/kube-ipvs"

// writeKrew writes the manifest with the sums of the archives beside it.
func writeKrew(o options) error {
	m := krew{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"}
	m.Metadata.Name = "ipvs"
	m.Spec = krewSpec{
		Version: "v" + chartVersion(o.version), Homepage: homepage,
		ShortDescription: "See what kube-ipvs does on all nodes",
		Description:      "Asks the kube-ipvs agents of all nodes and joins their answers: what all nodes\nagree on is said once, and what differs is said with its node.\n",
		Caveats:          "The cluster runs kube-ipvs, and you may list its pods and exec in them.\n",
	}
	for _, p := range platforms(o) {
		text, err := os.ReadFile(filepath.Join(o.out, pluginName(o, p)))
		if err != nil {
			return err
		}
		one := krewPlatform{URI: fmt.Sprintf("%s/releases/download/%s/%s", homepage, o.version, pluginName(o, p)), SHA256: fmt.Sprintf("%x", sha256.Sum256(text)), Bin: pluginFile}
		one.Selector.MatchLabels = map[string]string{"os": p.os, "arch": p.arch}
		for _, name := range []string{pluginFile, "LICENSE", "LICENSES.txt"} {
			one.Files = append(one.Files, krewFile{"kubectl-ipvs/" + name, "."})
		}
		m.Spec.Platforms = append(m.Spec.Platforms, one)
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, krewName), text, 0o644) //nolint:gosec // it is published
}

// checkPlugins reads the manifest and each archive that it names again.
func checkPlugins(o options) error {
	text, err := os.ReadFile(filepath.Join(o.out, krewName))
	if err != nil {
		return err
	}
	var m krew
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		return fmt.Errorf("%s: %w", krewName, err)
	}
	if got, want := len(m.Spec.Platforms), len(platforms(o)); got != want {
		return fmt.Errorf("%s has %d platforms, want %d", krewName, got, want)
	}
	for _, p := range m.Spec.Platforms {
		if err := checkPlugin(o, p); err != nil {
			return fmt.Errorf("%s: %w", p.URI, err)
		}
	}
	return nil
}

// checkPlugin wants what krew installs: regular files alone, of which one is the program.
func checkPlugin(o options, p krewPlatform) error {
	text, err := os.ReadFile(filepath.Join(o.out, filepath.Base(p.URI)))
	if err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(text)); got != p.SHA256 {
		return fmt.Errorf("sum %s, want %s", got, p.SHA256)
	}
	files, err := unpack(bytes.NewReader(text))
	if err != nil {
		return err
	}
	have := map[string][]byte{}
	for _, f := range files {
		if f.link != "" {
			return fmt.Errorf("%s is a link, which krew refuses", f.name)
		}
		have[f.name] = f.data
	}
	for _, f := range p.Files {
		if len(have[f.From]) == 0 {
			return fmt.Errorf("%s is missing or empty", f.From)
		}
	}
	program, arch := have["kubectl-ipvs/"+p.Bin], p.Selector.MatchLabels["arch"]
	if p.Selector.MatchLabels["os"] == "linux" {
		return checkProgram(program, arch)
	}
	file, err := macho.NewFile(bytes.NewReader(program))
	if err != nil {
		return err
	}
	if file.Cpu != machOs[arch] {
		return errors.New("the program is for " + file.Cpu.String())
	}
	return nil
}

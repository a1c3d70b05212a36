package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// chartVersion returns a version as Helm wants it (semver.org).
func chartVersion(version string) string {
	if tagged.MatchString(version) {
		return strings.TrimPrefix(version, "v")
	}
	return "0.0.0-g" + version
}

func chartName(o options) string { return fmt.Sprintf("kube-ipvs-%s.tgz", chartVersion(o.version)) }

// chart packs manifests/chart as helm package does, with the version of the release.
func chart(o options) error {
	const dir = "manifests/chart"
	var files []entry
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Clean(path))
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if name == "Chart.yaml" {
			text = bytes.Replace(text, []byte("\nversion: 0.0.0\n"), []byte("\nversion: "+chartVersion(o.version)+"\n"), 1)
			text = bytes.Replace(text, []byte("\nappVersion: dev\n"), []byte("\nappVersion: "+o.version+"\n"), 1)
		}
		files = append(files, entry{name: filepath.ToSlash(name), mode: 0o644, data: text})
		return err
	})
	if err != nil {
		return err
	}
	return archive(filepath.Join(o.out, chartName(o)), "kube-ipvs", o.date, files)
}

// checkChart wants the version of the release in the chart, and its templates.
func checkChart(o options) error {
	text, err := os.ReadFile(filepath.Join(o.out, chartName(o)))
	if err != nil {
		return err
	}
	files, err := unpack(bytes.NewReader(text))
	if err != nil {
		return err
	}
	have := map[string]string{}
	for _, f := range files {
		have[f.name] = string(f.data)
	}
	for name, want := range map[string]string{
		"kube-ipvs/Chart.yaml":               "\nversion: " + chartVersion(o.version) + "\nappVersion: " + o.version + "\n",
		"kube-ipvs/values.yaml":              "\nkubeProxy:\n",
		"kube-ipvs/values.schema.json":       `"kubeProxy"`,
		"kube-ipvs/templates/daemonset.yaml": "kind: DaemonSet",
	} {
		if !strings.Contains(have[name], want) {
			return fmt.Errorf("chart: %s has no %q", name, want)
		}
	}
	return nil
}

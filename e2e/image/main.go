// Program image packs the program and the tools that it launches into a container image. It writes
// a layout of the Open Container Initiative: one image for each platform, and an index of them. It
// needs no daemon and no root. Two runs with the same input write the same bytes.
//
//	image -name registry.example/kube-ipvs:v0.1.0 -version v0.1.0 -commit ... -date ... -out bin/image linux/amd64=BASE=PROGRAM ...
//
// BASE is a directory (manifests/image/base.sh), PROGRAM the program for the platform.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// options are those of one image.
type options struct {
	name, version, commit, out string
	date                       time.Time
	sources                    []source
}

// source is what the image for one platform is made of.
type source struct{ arch, base, program string }

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		err = write(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image: FAILED:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	var date string
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	f.StringVar(&o.name, "name", "kube-ipvs:dev", "`NAME` of the image, with a tag")
	f.StringVar(&o.version, "version", "", "`VERSION` of the program")
	f.StringVar(&o.commit, "commit", "", "`HASH` of the commit")
	f.StringVar(&date, "date", "", "`TIME` of the commit, in RFC 3339")
	f.StringVar(&o.out, "out", "bin/image", "`DIRECTORY` of the layout; it is emptied first")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.date, err = time.Parse(time.RFC3339, date); err != nil {
		return o, fmt.Errorf("-date: %w", err)
	}
	for _, arg := range f.Args() {
		parts := strings.Split(arg, "=")
		arch, linux := strings.CutPrefix(parts[0], "linux/")
		if len(parts) != 3 || !linux {
			return o, fmt.Errorf("%q is not linux/ARCH=BASE=PROGRAM", arg)
		}
		o.sources = append(o.sources, source{arch, parts[1], parts[2]})
	}
	if len(o.sources) == 0 {
		return o, errors.New("no platform is named")
	}
	return o, nil
}

// descriptor points at a blob of the layout (image-spec, descriptor.md).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	Schema      int               `json:"schemaVersion"`
	MediaType   string            `json:"mediaType"`
	Config      *descriptor       `json:"config,omitempty"`
	Layers      []descriptor      `json:"layers,omitempty"`
	Manifests   []descriptor      `json:"manifests,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// imageConfig is the part of an image's configuration that is used (image-spec, config.md).
type imageConfig struct {
	platform
	Created time.Time `json:"created"`
	Config  struct {
		Entrypoint []string          `json:"Entrypoint"`
		Env        []string          `json:"Env"`
		Labels     map[string]string `json:"Labels"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// layout is a directory of blobs.
type layout struct{ dir string }

// write makes the layout.
func write(o options) error {
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	l := layout{o.out}
	if err := os.MkdirAll(filepath.Join(o.out, "blobs", "sha256"), 0o755); err != nil {
		return err
	}
	index := manifest{Schema: 2, MediaType: mediaIndex, Annotations: labels(o)}
	for _, s := range o.sources {
		d, err := l.image(o, s)
		if err != nil {
			return fmt.Errorf("linux/%s: %w", s.arch, err)
		}
		index.Manifests = append(index.Manifests, d)
	}
	d, err := l.json(mediaIndex, index)
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(o.name[strings.LastIndex(o.name, "/")+1:], ":")
	d.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": normalized(o.name)}
	top, err := json.Marshal(manifest{Schema: 2, MediaType: mediaIndex, Manifests: []descriptor{d}})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"index.json": top, "oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)} {
		if err := os.WriteFile(filepath.Join(o.out, name), text, 0o644); err != nil { //nolint:gosec // it is published
			return err
		}
	}
	return nil
}

// normalized is the name under which containerd keeps the image and a kubelet looks for it: with a registry and a path
// (github.com/distribution/reference, ParseDockerRef). The importer takes a name as it is.
func normalized(name string) string {
	host, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "docker.io/library/" + name
	case host == "docker.io" && !strings.Contains(rest, "/"):
		return "docker.io/library/" + rest
	case host == "localhost" || strings.ContainsAny(host, ".:"):
		return name
	}
	return "docker.io/" + name
}

// labels are those that registries and scanners show.
func labels(o options) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": "kube-ipvs", prefix + "description": "Kubernetes Services balanced by the kernel's IP Virtual Server",
		prefix + "version": o.version, prefix + "revision": o.commit, prefix + "created": o.date.UTC().Format(time.RFC3339),
		prefix + "licenses": "Apache-2.0", prefix + "source": "https://github.com/kube-ipvs/kube-ipvs",
	}
}

// image writes the image for one platform. The base is a layer of its own, so that an upgrade
// fetches the program alone.
func (l layout) image(o options, s source) (descriptor, error) {
	if err := complete(s.base); err != nil {
		return descriptor{}, err
	}
	program, err := os.ReadFile(filepath.Clean(s.program))
	if err != nil {
		return descriptor{}, err
	}
	base, err := tree(s.base, o.date)
	if err != nil {
		return descriptor{}, err
	}
	c := imageConfig{platform: platform{s.arch, "linux"}, Created: o.date.UTC()}
	c.Config.Entrypoint = []string{"/usr/local/bin/kube-ipvs"}
	c.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	c.Config.Labels = labels(o)
	c.RootFS.Type = "layers"
	m := manifest{Schema: 2, MediaType: mediaManifest}
	size := 0
	for _, text := range [][]byte{base, programLayer(program, o.date)} {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digest(text))
		d, err := l.blob(mediaLayer, compress(text))
		if err != nil {
			return d, err
		}
		m.Layers = append(m.Layers, d)
		size += d.Size
	}
	config, err := l.json(mediaConfig, c)
	if err != nil {
		return config, err
	}
	m.Config = &config
	d, err := l.json(mediaManifest, m)
	d.Platform = &c.platform
	fmt.Printf("image: linux/%s: %.1f MiB to fetch, %.1f MiB of them the program\n", s.arch, float64(size)/(1<<20), float64(m.Layers[1].Size)/(1<<20))
	return d, err
}

func (l layout) json(media string, value any) (descriptor, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(media, text)
}

// blob writes a blob and returns its descriptor.
func (l layout) blob(media string, text []byte) (descriptor, error) {
	sum := digest(text)
	path := filepath.Join(l.dir, "blobs", "sha256", strings.TrimPrefix(sum, "sha256:"))
	return descriptor{MediaType: media, Digest: sum, Size: len(text)}, os.WriteFile(path, text, 0o644) //nolint:gosec // it is published
}

func digest(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }

// compress compresses without a name and a time. A buffer takes all that is written.
func compress(text []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	_, _ = w.Write(text)
	_ = w.Close()
	return out.Bytes()
}

// programLayer has the program, and the name under which kubeadm's DaemonSet starts kube-proxy.
func programLayer(program []byte, date time.Time) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeReg, Name: "usr/local/bin/kube-ipvs", Mode: 0o755, Size: int64(len(program))},
		{Typeflag: tar.TypeSymlink, Name: "usr/local/bin/kube-proxy", Linkname: "kube-ipvs", Mode: 0o777},
	} {
		h.ModTime, h.Format = date, tar.FormatUSTAR
		_ = w.WriteHeader(h) // valid, into a buffer
		if h.Size > 0 {
			_, _ = w.Write(program)
		}
	}
	_ = w.Close()
	return out.Bytes()
}

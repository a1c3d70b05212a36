package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// contents is the metadata of a package, and its regular files by path without the first
// slash. The content of a link is its target.
type contents struct {
	version, arch string
	files         map[string][]byte
}

// readDeb reads a Debian package (deb(5)): an ar archive of two compressed tar files.
func readDeb(text []byte) (contents, error) {
	c := contents{files: map[string][]byte{}}
	members, err := readAr(text)
	if err != nil {
		return c, err
	}
	control, err := unpack(bytes.NewReader(members["control.tar.gz"]))
	if err != nil {
		return c, fmt.Errorf("control.tar.gz: %w", err)
	}
	for _, f := range control {
		if f.name != "control" {
			continue
		}
		for line := range strings.Lines(string(f.data)) {
			name, value, _ := strings.Cut(line, ":")
			switch name {
			case "Version":
				c.version = strings.TrimSpace(value)
			case "Architecture":
				c.arch = strings.TrimSpace(value)
			}
		}
	}
	data, err := unpack(bytes.NewReader(members["data.tar.gz"]))
	if err != nil {
		return c, fmt.Errorf("data.tar.gz: %w", err)
	}
	for _, f := range data {
		c.files[strings.TrimPrefix(f.name, "/")] = append(f.data, f.link...)
	}
	return c, nil
}

// readAr returns the members of an ar archive.
func readAr(text []byte) (map[string][]byte, error) {
	rest, ok := bytes.CutPrefix(text, []byte("!<arch>\n"))
	if !ok {
		return nil, errors.New("no ar archive")
	}
	members := map[string][]byte{}
	for len(rest) >= 60 {
		name := strings.TrimRight(string(rest[:16]), " /")
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || size < 0 || size > len(rest)-60 {
			return nil, fmt.Errorf("member %s of an ar archive is cut short", name)
		}
		members[name] = rest[60 : 60+size]
		rest = rest[min(60+size+size%2, len(rest)):]
	}
	return members, nil
}

// Tags of the header of an rpm.
const (
	rpmVersion = 1001
	rpmArch    = 1022
)

// readRPM reads an rpm: a lead of 96 bytes, two headers, and a compressed cpio archive.
func readRPM(text []byte) (contents, error) {
	c := contents{files: map[string][]byte{}}
	if len(text) < 96 || !bytes.HasPrefix(text, []byte{0xed, 0xab, 0xee, 0xdb}) {
		return c, errors.New("no rpm")
	}
	rest := text[96:]
	_, size, err := readHeader(rest)
	if err != nil {
		return c, fmt.Errorf("signature: %w", err)
	}
	rest = rest[min((size+7)/8*8, len(rest)):] // the second header begins at a multiple of 8
	values, size, err := readHeader(rest)
	if err != nil {
		return c, fmt.Errorf("header: %w", err)
	}
	c.version, c.arch = values[rpmVersion], values[rpmArch]
	payload, err := gzip.NewReader(bytes.NewReader(rest[size:]))
	if err != nil {
		return c, fmt.Errorf("payload: %w", err)
	}
	archive, err := io.ReadAll(payload)
	if err != nil {
		return c, fmt.Errorf("payload: %w", err)
	}
	c.files, err = readCPIO(archive)
	return c, err
}

// readHeader returns the strings of a header by tag, and how long it is.
func readHeader(text []byte) (values map[uint32]string, size int, err error) {
	if len(text) < 16 || !bytes.HasPrefix(text, []byte{0x8e, 0xad, 0xe8}) {
		return nil, 0, errors.New("no header")
	}
	count, store := int(binary.BigEndian.Uint32(text[8:])), int(binary.BigEndian.Uint32(text[12:]))
	size = 16 + 16*count + store
	if count > 1<<16 || store > 1<<28 || size > len(text) {
		return nil, 0, errors.New("a header is cut short")
	}
	values, data := map[uint32]string{}, text[16+16*count:size]
	for i := range count {
		e := text[16+16*i:]
		const isString = 6
		offset := int(binary.BigEndian.Uint32(e[8:]))
		if binary.BigEndian.Uint32(e[4:]) == isString && offset < len(data) {
			value, _, _ := bytes.Cut(data[offset:], []byte{0})
			values[binary.BigEndian.Uint32(e)] = string(value)
		}
	}
	return values, size, nil
}

// readCPIO returns the files of a cpio archive in the "newc" format.
func readCPIO(text []byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	const header = 110
	for at := 0; ; {
		if len(text)-at < header || string(text[at:at+5]) != "07070" {
			return nil, errors.New("a cpio archive is cut short")
		}
		field := func(n int) int {
			v, err := strconv.ParseInt(string(text[at+6+8*n:at+14+8*n]), 16, 32)
			if err != nil {
				return -1
			}
			return int(v)
		}
		mode, size, length := field(1), field(6), field(11)
		begin := at + (header+length+3)/4*4
		if mode < 0 || size < 0 || length < 1 || begin+size > len(text) {
			return nil, errors.New("a cpio archive is cut short")
		}
		name := strings.TrimPrefix(string(text[at+header:at+header+length-1]), ".")
		if name == "TRAILER!!!" {
			return files, nil
		}
		const typeMask, regular, link = 0o170000, 0o100000, 0o120000
		if kind := mode & typeMask; kind == regular || kind == link {
			files[strings.TrimPrefix(name, "/")] = text[begin : begin+size]
		}
		at = begin + (size+3)/4*4
	}
}

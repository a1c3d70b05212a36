package file

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// content is the parsed content of one file.
type content struct {
	objects []object
	// notes are about fields that are not used; the file is good all the same.
	notes []Problem
	// faults make the file bad; there are no objects then.
	faults []Problem
	// foreign counts the objects of other kinds.
	foreign map[string]int
}

// text is a file as it was read.
type text struct {
	name string
	data []byte
}

// parse reads files in parallel, first by document and then by object, so that
// one big file takes no longer than many small ones.
func parse(files []text) []content {
	out := make([]content, len(files))
	docs := splitAll(files, out)
	parallel(len(docs), func(i int) { docs[i].items, docs[i].faults = open(&docs[i].document) })
	jobs := decodeAll(docs)
	for i := range docs {
		out[docs[i].file].fault(files[docs[i].file].name, &docs[i].document, docs[i].faults)
	}
	for i := range jobs {
		out[jobs[i].file].take(files[jobs[i].file].name, &jobs[i])
	}
	for i := range out {
		out[i].settle()
	}
	return out
}

// opened is a document of the file with that index, and what was in it.
type opened struct {
	document
	file   int
	items  []item
	faults []fault
}

func splitAll(files []text, out []content) []opened {
	parts := make([][]document, len(files))
	errs := make([]error, len(files))
	parallel(len(files), func(i int) { parts[i], errs[i] = split(files[i].name, files[i].data) })
	var docs []opened
	for i := range files {
		if errs[i] != nil {
			out[i].faults = []Problem{{File: files[i].name, Reason: errs[i].Error(), BadFile: true}}
		}
		for _, d := range parts[i] {
			docs = append(docs, opened{document: d, file: i})
		}
	}
	return docs
}

// job is one object to decode, and the outcome.
type job struct {
	item
	file   int
	object object
	faults []fault
}

func decodeAll(docs []opened) []job {
	var jobs []job
	for i := range docs {
		for _, it := range docs[i].items {
			jobs = append(jobs, job{item: it, file: docs[i].file})
		}
	}
	parallel(len(jobs), func(i int) {
		if !jobs[i].foreign() {
			jobs[i].object, jobs[i].faults = jobs[i].decode()
		}
	})
	return jobs
}

func (c *content) take(file string, j *job) {
	switch {
	case j.foreign():
		if c.foreign == nil {
			c.foreign = map[string]int{}
		}
		c.foreign[j.typeMeta.APIVersion+" "+j.typeMeta.Kind]++
	case len(j.faults) > 0:
		c.fault(file, j.doc, j.faults)
	default:
		j.object.line = j.doc.line
		c.objects = append(c.objects, j.object)
		c.note(file, j)
	}
}

// note tells what of an object is not used, at the line of the field that the
// reason begins with.
func (c *content) note(file string, j *job) {
	for _, f := range j.object.newer {
		p := f.problem(file, j.doc)
		p.BadFile = false
		c.notes = append(c.notes, p)
	}
	for _, reason := range j.object.value.problems() {
		f := fault{object: j.object.key.String(), reason: reason}
		if path, rest, ok := strings.Cut(reason, ": "); ok && !strings.Contains(path, " ") {
			f.path, f.reason = path, rest
		}
		p := f.below(j.path).problem(file, j.doc)
		p.BadFile = false
		c.notes = append(c.notes, p)
	}
}

// fault keeps the first few: a file of another program has one a document.
func (c *content) fault(file string, doc *document, faults []fault) {
	for _, f := range faults {
		if len(c.faults) < maxReported {
			c.faults = append(c.faults, f.problem(file, doc))
		}
	}
}

// settle drops everything but the faults of a bad file.
func (c *content) settle() {
	if len(c.faults) > 0 {
		slices.SortFunc(c.faults, compareProblems)
		*c = content{faults: c.faults}
	}
}

// parallel calls do(0..n-1) on as many goroutines as there are processors.
func parallel(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

package file

// SetReadFile puts a fault between the source and the disk; before Run only.
func (s *Source) SetReadFile(read func(string) ([]byte, error)) { s.store.dirScanner.readFile = read }

// ReadFile reads from the real disk.
var ReadFile = realDisk().readFile

// Parsed is what Parse makes of one file.
type Parsed struct {
	Objects       []string
	Notes, Faults []Problem
	Foreign       map[string]int
}

// Parse reads one file as the source does.
func Parse(name string, data []byte) Parsed {
	c := parse([]text{{name: name, data: data}})[0]
	p := Parsed{Notes: c.notes, Faults: c.faults, Foreign: c.foreign}
	for _, o := range c.objects {
		p.Objects = append(p.Objects, o.key.String())
	}
	return p
}

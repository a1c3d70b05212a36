package nftables

import (
	"fmt"
	"io"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Writer is a program that wrote tables. The zero value means transactions whose notifications were
// lost.
type Writer struct {
	// Generation is the number of its last transaction.
	Generation uint32
	// Port is the port of the socket that it wrote by.
	Port uint32
	// PID is the thread that wrote, in the numbers of the first PID namespace.
	PID uint32
	// Program is the name of that thread, by default that of its program, of at most 15 bytes.
	Program string
}

// String names the program: "nft[4711]".
func (w Writer) String() string {
	if w == (Writer{}) {
		return "unknown"
	}
	return fmt.Sprintf("%s[%d]", w.Program, w.PID)
}

// mostWriters bounds the programs that one notification names; of others the first counts as lost.
const mostWriters = 16

// addWriter notes a transaction: of one thread and socket the last one counts.
func addWriter(list []Writer, w Writer) []Writer {
	same := func(o Writer) bool { return o.Port == w.Port && o.PID == w.PID && o.Program == w.Program }
	if i := slices.IndexFunc(list, same); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == mostWriters {
		list = slices.Insert(list[2:], 0, Writer{})
	}
	return append(list, w)
}

// readWriter reads the notification of a new generation.
func readWriter(b []byte) (Writer, error) {
	m, _, err := nfnetlink.Next(b)
	if err != nil {
		return Writer{}, err
	}
	generation, err := readGeneration(m)
	if err != nil {
		return Writer{}, err
	}
	a := m.Attrs()
	return Writer{Generation: generation, Port: m.Port, PID: a.Number(genPID), Program: a.Text(genProgram)}, nil
}

// ear is a netlink socket that receives notifications of transactions.
type ear interface {
	// Await returns when there was a transaction, or may have been, and takes all
	// notifications that wait.
	Await() ([]Writer, error)
	// Interrupt ends an Await that waits, and all to come.
	Interrupt()
	io.Closer
}

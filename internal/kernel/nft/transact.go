package nft

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// The limits of one transaction. A pass with more elements is several transactions: the first has all
// other rows but deletions of chains, which come last. A pass that replaces a table is divided only if
// the kernel refuses its size: packets would meet the new rules before all elements.
const (
	mostInMessage     = 512   // an attribute holds 64 KiB, and an element has up to 100 bytes
	mostInTransaction = 32768 // elements: some 3 MiB
)

// kindOf is the kind of a row.
type kindOf uint8

const (
	ofTable kindOf = iota
	ofSet
	ofChain
	ofElement
)

// row names a row of a pass.
type row struct {
	kind kindOf
	i    int
}

// run is a message of elements: rows of one set that are added, or deleted. An update is in two.
type run struct {
	remove bool
	rows   []int
}

// pass writes a Pass: it sends the rows as one transaction. As long as the kernel refuses that, it
// takes out the rows that are refused and sends the others again. The kernel works through all
// messages of a transaction and reports each that it refuses. Of a message with several elements the
// kernel may say which one it refuses; if not, the message is halved.
type pass struct {
	Pass
	check bool // the transaction has no end: the kernel checks it and changes nothing
	limit int  // elements in one transaction
	// dead are rows that failed; settled are those with nothing left to do.
	dead    map[row]error
	settled map[row]bool
	// changed are rows that were turned into another operation, which happens once.
	changed map[row]bool
	broken  error // the error that ended the exchange with the kernel
	headed  bool  // all rows but elements and deletions of chains are written
	runs    []run // the elements that are to be sent, in order
}

// sent is one message of a transaction and what it is about.
type sent struct {
	row    row
	starts []int // offsets at which elements begin
	run    int   // of elements: the index of the run
	remove bool  // the message deletes what may be missing
	create bool  // the message creates what may exist and differ
}

// refusal is the kernel's answer about one message.
type refusal struct {
	errno  syscall.Errno
	offset int // offset of the attribute that is refused; 0 where the kernel does not say
}

func newPass(in Pass, check bool) *pass {
	p := &pass{Pass: in, check: check, limit: mostInTransaction, dead: map[row]error{}, settled: map[row]bool{}, changed: map[row]bool{}}
	if check || slices.ContainsFunc(in.Tables, replaces) { // of a check nothing remains for another transaction
		p.limit = max(p.limit, 2*len(in.Elements)) // an update of an element is in two messages
	}
	admit(p, ofTable, in.Tables)
	admit(p, ofSet, in.Sets)
	admit(p, ofChain, in.Chains)
	admit(p, ofElement, in.Elements)
	p.settle()
	p.runs = p.group()
	return p
}

// replaces reports whether a row replaces a table.
func replaces(c TableChange) bool { return c.Op == Update }

// change is a row of any kind.
type change interface {
	fmt.Stringer
	Check() error
}

func admit[C change](p *pass, kind kindOf, rows []C) {
	for i, c := range rows {
		if err := c.Check(); err != nil {
			p.dead[row{kind, i}] = err
		}
	}
}

// live reports whether a row is still to be written.
func (p *pass) live(kind kindOf, i int) bool {
	r := row{kind, i}
	return p.dead[r] == nil && !p.settled[r]
}

// settle finds the deletions of what goes with a table or a set that is deleted, or emptied, in the
// same pass.
func (p *pass) settle() {
	tables, sets := map[Family]bool{}, map[Key]bool{}
	for i, c := range p.Tables {
		if c.Op != Add && p.live(ofTable, i) {
			tables[c.Family] = true
		}
	}
	for i, c := range p.Sets {
		if c.Op != Add && p.live(ofSet, i) {
			sets[c.Key] = true
			p.settled[row{ofSet, i}] = c.Op == Delete && tables[c.Key.Family]
		}
	}
	for i, c := range p.Chains {
		p.settled[row{ofChain, i}] = c.Op == Delete && tables[c.Key.Family]
	}
	for i, c := range p.Elements {
		if c.Op == Delete && (tables[c.Key.Family] || sets[c.Key]) {
			p.settled[row{ofElement, i}] = true
		}
	}
}

// group puts elements of one set that are deleted, and those that are added, into messages. Within a
// set deletions come first, so that a range can take the place of another.
func (p *pass) group() (out []run) {
	var order []Key
	rows := map[Key][]int{}
	for i, c := range p.Elements {
		if !p.live(ofElement, i) {
			continue
		}
		if rows[c.Key] == nil {
			order = append(order, c.Key)
		}
		rows[c.Key] = append(rows[c.Key], i)
	}
	for _, k := range order {
		out = p.runsOf(out, rows[k], true, Add)
		out = p.runsOf(out, rows[k], false, Delete)
	}
	return out
}

// runsOf appends the messages of the rows of one set, but for those of an operation.
func (p *pass) runsOf(out []run, rows []int, remove bool, but Op) []run {
	var some []int
	for _, i := range rows {
		if p.Elements[i].Op != but {
			some = append(some, i)
		}
	}
	for part := range slices.Chunk(some, mostInMessage) {
		out = append(out, run{remove, part})
	}
	return out
}

// transport sends one transaction that build makes, and returns the refusals in the order of its
// messages, by their index.
type transport interface {
	transact(build func(*writer), check bool) (map[int]refusal, error)
}

// apply writes the pass and returns the results of its rows.
func (p *pass) apply(t transport) Outcome {
	for {
		todo := p.take()
		last := len(todo) == len(p.runs)
		var messages []sent
		refused, err := t.transact(func(w *writer) { messages = p.build(w, todo, last) }, p.check)
		switch {
		case len(messages) == 0:
			return p.outcome()
		case tooMuch(err) && len(todo) > 1:
			p.limit = max(1, p.limit/2)
		case err != nil:
			p.fail(err)
			return p.outcome()
		case len(refused) > 0:
			p.resolve(messages, refused)
		case last:
			return p.outcome()
		default:
			p.written(len(todo))
		}
	}
}

// take returns the runs of the next transaction.
func (p *pass) take() []run {
	n := 0
	for i, r := range p.runs {
		if n += len(r.rows); n > p.limit && i > 0 {
			return p.runs[:i]
		}
	}
	return p.runs
}

// tooMuch reports whether the kernel would take a smaller transaction.
func tooMuch(err error) bool {
	return errors.Is(err, syscall.EMSGSIZE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// written notes that a transaction which was not the last one is done.
func (p *pass) written(runs int) {
	p.headed = true
	for i := range p.Tables {
		p.settled[row{ofTable, i}] = true
	}
	for i := range p.Sets {
		p.settled[row{ofSet, i}] = true
	}
	for i, c := range p.Chains {
		p.settled[row{ofChain, i}] = p.settled[row{ofChain, i}] || c.Op != Delete
	}
	p.runs = p.runs[runs:]
	rest := map[int]bool{}
	for _, r := range p.runs {
		for _, i := range r.rows {
			rest[i] = true
		}
	}
	for i := range p.Elements {
		p.settled[row{ofElement, i}] = p.settled[row{ofElement, i}] || !rest[i]
	}
}

// fail notes one error for all rows that are still to be written.
func (p *pass) fail(err error) {
	p.broken = err
	for kind, n := range []int{len(p.Tables), len(p.Sets), len(p.Chains), len(p.Elements)} {
		for i := range n {
			if p.live(kindOf(kind), i) {
				p.dead[row{kindOf(kind), i}] = err
			}
		}
	}
}

// build makes the messages of one transaction, in the order in which the kernel takes them: an
// object comes before those that refer to it, and goes after them.
func (p *pass) build(w *writer, runs []run, last bool) (out []sent) {
	add := func(r row, remove, create bool, write func()) {
		write()
		out = append(out, sent{row: r, remove: remove, create: create})
	}
	if !p.headed {
		p.buildTables(w, add)
		p.buildChains(w, add)
		p.buildSets(w, add)
	}
	for n, r := range runs {
		if m, ok := p.buildRun(w, r); ok {
			m.run = n
			out = append(out, m)
		}
	}
	if !p.headed {
		p.buildRules(w, add)
	}
	for i, c := range p.Chains {
		if last && c.Op == Delete && p.live(ofChain, i) {
			add(row{ofChain, i}, true, false, func() { w.deleteChain(c.Key) })
		}
	}
	return out
}

// adder takes one message and what it is about.
type adder func(r row, remove, create bool, write func())

// buildTables replaces a table by deleting it, which takes that it exists.
func (p *pass) buildTables(w *writer, add adder) {
	for i, c := range p.Tables {
		if !p.live(ofTable, i) {
			continue
		}
		r := row{ofTable, i}
		if c.Op != Delete {
			add(r, false, true, func() { w.createTable(c.Family) })
		}
		if c.Op != Add {
			add(r, true, false, func() { w.deleteTable(c.Family) })
		}
		if c.Op == Update {
			add(r, false, true, func() { w.createTable(c.Family) })
		}
	}
}

// buildChains creates chains and takes the rules out of all.
func (p *pass) buildChains(w *writer, add adder) {
	for i, c := range p.Chains {
		if !p.live(ofChain, i) {
			continue
		}
		r := row{ofChain, i}
		if p.changed[r] { // the chain exists with another hook
			add(r, true, false, func() { w.flushChain(c.Key) })
			add(r, true, false, func() { w.deleteChain(c.Key) })
		}
		if c.Op != Delete {
			add(r, false, true, func() { w.createChain(c.Key, c.Chain.Base) })
		}
		add(r, c.Op == Delete, false, func() { w.flushChain(c.Key) })
	}
}

func (p *pass) buildSets(w *writer, add adder) {
	for i, c := range p.Sets {
		if !p.live(ofSet, i) {
			continue
		}
		r := row{ofSet, i}
		if c.Op == Delete {
			add(r, true, false, func() { w.deleteSet(c.Key) })
			continue
		}
		add(r, false, true, func() { w.createSet(c.Key, c.Set) })
		if c.Op == Update {
			add(r, false, false, func() { w.flushSet(c.Key) })
		}
	}
}

func (p *pass) buildRun(w *writer, r run) (m sent, ok bool) {
	var list []Element
	for _, i := range r.rows {
		if p.live(ofElement, i) {
			list = append(list, p.Elements[i].Element)
		}
	}
	if len(list) == 0 {
		return m, false
	}
	c := p.Elements[r.rows[0]]
	return sent{row: row{kind: ofElement}, remove: r.remove, starts: w.elements(c.Key, c.Set, r.remove, list)}, true
}

func (p *pass) buildRules(w *writer, add adder) {
	for i, c := range p.Chains {
		if c.Op == Delete || !p.live(ofChain, i) {
			continue
		}
		for _, r := range c.Chain.Rules {
			add(row{ofChain, i}, false, false, func() { w.appendRule(c.Key, r) })
		}
	}
}

// resolve draws the conclusions from what the kernel refused.
func (p *pass) resolve(messages []sent, refused map[int]refusal) {
	split := map[int][]run{}
	spoiled := false // the table is not valid any more
	for n, m := range messages {
		r, ok := refused[n]
		switch {
		case !ok || spoiled && spoils(m, r.errno):
			continue
		case spoils(m, r.errno):
			spoiled = true
		}
		switch m.row.kind {
		case ofElement:
			split[m.run] = p.splitRun(p.alive(p.runs[m.run]), m, r)
		default:
			p.refuse(m, r.errno)
		}
	}
	p.keepTables()
	p.replace(split)
}

// keepTables fails all rows about a table that could not be replaced: they are not for the one that stays.
func (p *pass) keepTables() {
	for i, c := range p.Tables {
		err := p.dead[row{ofTable, i}]
		if err == nil || !replaces(c) {
			continue
		}
		of := func(k Key) bool { return k.Family == c.Family }
		failRows(p, ofSet, p.Sets, func(c SetChange) bool { return of(c.Key) }, err)
		failRows(p, ofChain, p.Chains, func(c ChainChange) bool { return of(c.Key) }, err)
		failRows(p, ofElement, p.Elements, func(c ElementChange) bool { return of(c.Key) }, err)
	}
}

// failRows notes one error for some rows of a kind.
func failRows[C change](p *pass, kind kindOf, rows []C, which func(C) bool, err error) {
	for i, c := range rows {
		if which(c) && p.dead[row{kind, i}] == nil {
			p.dead[row{kind, i}] = err
		}
	}
}

// spoils reports whether a refusal may be about the chains that a row leads to. The kernel validates
// the whole table after each rule and each message of elements. So it refuses the rows behind one that
// makes the table invalid as well (nft_table_validate in net/netfilter/nf_tables_api.c).
func spoils(m sent, errno syscall.Errno) bool {
	if m.remove || m.create || m.row.kind != ofElement && m.row.kind != ofChain {
		return false
	}
	switch errno {
	case syscall.EOPNOTSUPP, syscall.EINVAL, syscall.ELOOP, syscall.EMLINK:
		return true
	}
	return false
}

// replace puts other runs in the place of some, and takes out the rows that are done.
func (p *pass) replace(split map[int][]run) {
	var runs []run
	for n, r := range p.runs {
		if parts, ok := split[n]; ok {
			runs = append(runs, parts...)
		} else if r = p.alive(r); len(r.rows) > 0 {
			runs = append(runs, r)
		}
	}
	p.runs = runs
}

// alive returns a run without the rows that are not to be written any more.
func (p *pass) alive(r run) run {
	return run{r.remove, slices.DeleteFunc(slices.Clone(r.rows), func(i int) bool { return !p.live(ofElement, i) })}
}

// refuse notes the refusal of a row that is no element.
func (p *pass) refuse(m sent, errno syscall.Errno) {
	switch {
	case !p.live(m.row.kind, m.row.i):
	case m.remove && errno == syscall.ENOENT && !p.changed[m.row]:
		p.settled[m.row] = true
	case m.create && m.row.kind == ofChain && (errno == syscall.EEXIST || errno == syscall.EOPNOTSUPP) && !p.changed[m.row]:
		p.changed[m.row] = true
	default:
		p.dead[m.row] = rowError(errno)
	}
}

// splitRun divides the run of a message that was refused, so that the row that is to blame is alone
// in a message at last. The message that was refused had the rows of r.
func (p *pass) splitRun(r run, m sent, why refusal) []run {
	n := len(r.rows)
	if n != len(m.starts) { // a row of the message has failed since: the others are sent again
		return nonEmpty(r.remove, r.rows)
	}
	if n == 1 {
		return p.refuseElement(r, why.errno)
	}
	if i, ok := slices.BinarySearch(m.starts, why.offset+1); !ok && i > 0 {
		i-- // the element that the attribute is in; all parts are small also if that is not so
		return slices.Concat(halves(r.remove, r.rows[:i]), nonEmpty(r.remove, r.rows[i:i+1]), halves(r.remove, r.rows[i+1:]))
	}
	return halves(r.remove, r.rows)
}

func halves(remove bool, rows []int) []run {
	return nonEmpty(remove, rows[:len(rows)/2], rows[len(rows)/2:])
}

func nonEmpty(remove bool, parts ...[]int) (out []run) {
	for _, rows := range parts {
		if len(rows) > 0 {
			out = append(out, run{remove, rows})
		}
	}
	return out
}

// refuseElement notes the refusal of a row that was alone in its message, and returns what is to be
// sent instead.
func (p *pass) refuseElement(r run, errno syscall.Errno) []run {
	i := r.rows[0]
	name := row{ofElement, i}
	c := p.Elements[i]
	switch {
	case r.remove && errno == syscall.ENOENT:
		if c.Op == Delete {
			p.settled[name] = true
		}
		return nil // an update adds the element
	case !r.remove && c.Op == Add && c.Set.Data != NoData && (errno == syscall.EBUSY || errno == syscall.EEXIST) && !p.changed[name]:
		p.changed[name] = true // the map has the element with other data
		return []run{{true, r.rows}, r}
	}
	if errno == syscall.EEXIST { // so the kernel answers about ranges
		errno = syscall.ENOTEMPTY
	}
	p.dead[name] = rowError(errno)
	return nil
}

// rowError is the kernel's refusal of a row.
func rowError(errno syscall.Errno) error {
	switch errno {
	case syscall.ENOENT:
		return fmt.Errorf("it, or what it refers to, %w (%w)", ErrNotExist, errno)
	case syscall.EEXIST:
		return fmt.Errorf("it %w and differs (%w)", ErrExist, errno)
	case syscall.ENOTEMPTY:
		return fmt.Errorf("it %w (%w)", ErrOverlap, errno)
	case syscall.EOPNOTSUPP, syscall.EAFNOSUPPORT, syscall.EPROTONOSUPPORT:
		return fmt.Errorf("%w by this kernel (%w)", ErrUnsupported, errno)
	case syscall.EINVAL, syscall.ERANGE, syscall.EOVERFLOW, syscall.ENODATA, syscall.ELOOP, syscall.EMLINK:
		return fmt.Errorf("%w (%w)", ErrInvalid, errno)
	}
	return wholeError(errno)
}

// wholeError is the kernel's refusal of everything, with what to do about it.
func wholeError(errno syscall.Errno) error {
	switch errno {
	case 0:
		return nil
	case syscall.EPERM, syscall.EACCES:
		return fmt.Errorf("%w; run with the capability CAP_NET_ADMIN, and see whether `nft list tables` shows a table %s with the flag owner", errno, TableName)
	case syscall.EOPNOTSUPP:
		return fmt.Errorf("%w by this kernel: nf_tables (%w)", ErrUnsupported, errno)
	case syscall.EBUSY, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOBUFS, syscall.EMSGSIZE:
		return fmt.Errorf("%w (%w)", ErrBusy, errno)
	}
	return errno
}

// Refuse returns the outcome of a pass of which no row was written, for one reason.
func Refuse(in Pass, err error) Outcome {
	p := newPass(in, false)
	p.fail(err)
	return p.outcome()
}

// outcome returns the errors of all rows.
func (p *pass) outcome() Outcome {
	return Outcome{
		failures(p, ofTable, p.Tables), failures(p, ofSet, p.Sets), failures(p, ofChain, p.Chains), failures(p, ofElement, p.Elements),
	}
}

func failures[C change](p *pass, kind kindOf, rows []C) (out []error) {
	for i, c := range rows {
		if err := p.dead[row{kind, i}]; err != nil {
			if out == nil {
				out = make([]error, len(rows))
			}
			out[i] = fmt.Errorf("%s: %w", c, err)
		}
	}
	return out
}

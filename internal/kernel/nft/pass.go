package nft

import (
	"errors"
	"fmt"
)

// Pass is what one call of Apply changes: rows of four kinds. Apply orders them by what refers to
// what, so the order of the rows does not matter, but for two rows about one element.
type Pass struct {
	Tables   []TableChange
	Sets     []SetChange
	Chains   []ChainChange
	Elements []ElementChange
}

// TableChange is a row about one of our two tables. Update replaces the table by an empty one of our
// version, whatever it was; the other rows of the pass fill it in the same transaction.
type TableChange struct {
	Op     Op
	Family Family
}

// SetChange is a row about a set or a map. Update deletes all elements.
type SetChange struct {
	Op  Op
	Key Key
	Set Set
}

// ChainChange is a row about a chain with all of its rules.
type ChainChange struct {
	Op    Op
	Key   Key
	Chain Chain
}

// Chain is a chain with its rules.
type Chain struct {
	Base  Base
	Rules []Rule
}

// Equal reports whether two chains do and say the same.
func (c Chain) Equal(o Chain) bool {
	if c.Base != o.Base || len(c.Rules) != len(o.Rules) {
		return false
	}
	for i, r := range c.Rules {
		if !r.Equal(o.Rules[i]) {
			return false
		}
	}
	return true
}

// ElementChange is a row about an element of a set. Set is the header that the set has, or gets in
// the same pass.
type ElementChange struct {
	Op      Op
	Key     Key
	Set     Set
	Element Element
}

// Outcome has the errors of a pass, each slice aligned with the rows of its kind; nil where all
// rows were written.
type Outcome struct {
	Tables, Sets, Chains, Elements []error
}

// Err returns all errors as one, nil if every row was written.
func (o Outcome) Err() error {
	return errors.Join(errors.Join(o.Tables...), errors.Join(o.Sets...), errors.Join(o.Chains...), errors.Join(o.Elements...))
}

// String prints the row: "update table ip kube-ipvs".
func (c TableChange) String() string { return fmt.Sprintf("%s table %s %s", c.Op, c.Family, TableName) }

// String prints the row: "add set ip kube-ipvs KUBE-CLUSTER-IP".
func (c SetChange) String() string { return fmt.Sprintf("%s %s %s", c.Op, c.Set.kind(), c.Key) }

// String prints the row: "delete chain ip kube-ipvs KUBE-SERVICES".
func (c ChainChange) String() string { return fmt.Sprintf("%s chain %s", c.Op, c.Key) }

// String prints the row: "add element ip kube-ipvs KUBE-CLUSTER-IP { 10.96.0.1 . tcp . 80 }".
func (c ElementChange) String() string {
	return fmt.Sprintf("%s element %s { %s }", c.Op, c.Key, c.Element.Text(c.Set))
}

func (o Op) check() error {
	return unless(o == Add || o == Update || o == Delete, o.String())
}

// Check returns why a row cannot be expressed, nil if it can.
func (c TableChange) Check() error { return errors.Join(c.Op.check(), checkFamily(c.Family)) }

// Check returns why a row cannot be expressed, nil if it can.
func (c SetChange) Check() error {
	if err := errors.Join(c.Op.check(), c.Key.check()); err != nil || c.Op == Delete {
		return err
	}
	return c.Set.check()
}

// Check returns why a row cannot be expressed, nil if it can.
func (c ChainChange) Check() error {
	if err := errors.Join(c.Op.check(), c.Key.check()); err != nil || c.Op == Delete {
		return err
	}
	if err := c.Chain.Base.check(); err != nil {
		return err
	}
	for _, r := range c.Chain.Rules {
		if err := r.check(c.Key.Family); err != nil {
			return err
		}
	}
	return nil
}

// Check returns why a row cannot be expressed, nil if it can.
func (c ElementChange) Check() error {
	if err := errors.Join(c.Op.check(), c.Key.check(), c.Set.check()); err != nil {
		return err
	}
	e := c.Element
	if c.Op == Delete { // by its key
		e = c.Element.Key()
		s := c.Set
		s.Data = NoData
		return e.check(c.Key.Family, s)
	}
	return e.check(c.Key.Family, c.Set)
}

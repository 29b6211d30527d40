// Package schema is what ent generates its code from.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Good is what is on stock.
type Good struct{ ent.Schema }

// Fields implements ent.Interface.
func (Good) Fields() []ent.Field {
	return []ent.Field{field.String("id").StorageKey("sku"), field.Int("left")}
}

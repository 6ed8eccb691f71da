/** The subset of JSON Schema that the body schemas use. */
export interface JsonSchema {
  type?: string;
  description?: string;
  enum?: string[];
  anyOf?: JsonSchema[];
  items?: JsonSchema;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  not?: object;
}

/** Returns the TypeScript type for a JSON Schema. Members in `optional` may be absent even if they are required. */
export function typeText(schema: JsonSchema, optional: readonly string[] = []): string {
  if (schema.not !== undefined) return 'never';
  if (schema.enum !== undefined) return schema.enum.map((word) => `'${word}'`).join(' | ');
  if (schema.anyOf !== undefined) return unionText(schema.anyOf, optional);
  if (schema.type === 'array') return `(${typeText(schema.items ?? {}, optional)})[]`;
  if (schema.type === 'integer') return 'number';
  if (schema.type !== 'object') return schema.type ?? 'unknown';
  return objectText(membersOf(schema, optional));
}

function membersOf({ properties = {}, required = [] }: JsonSchema, optional: readonly string[]): string[] {
  return Object.entries(properties).map(([name, member]) => {
    const isNeeded = required.includes(name) && !optional.includes(name);
    const comment = member.description === undefined ? '' : `/** ${sentence(member.description)} */\n`;
    return `${comment}${name}${isNeeded ? '' : '?'}: ${typeText(member, optional)};`;
  });
}

function objectText(members: readonly string[]): string {
  return `{\n${members.join('\n')}\n}`;
}

// Returns the text of a union type. Members that all objects share occur only once.
function unionText(schemas: readonly JsonSchema[], optional: readonly string[]): string {
  if (schemas.some(({ type }) => type !== 'object'))
    return schemas.map((one) => typeText(one, optional)).join(' | ');
  const all = schemas.map((one) => membersOf(one, optional));
  const shared = (all[0] ?? []).filter((member) => all.every((members) => members.includes(member)));
  const own = all.map((members) => objectText(members.filter((member) => !shared.includes(member))));
  return `${objectText(shared)} & (${own.join(' | ')})`;
}

function sentence(text: string): string {
  // The first letter of a value such as t2v is not capitalized, because values are case-sensitive.
  if (/^[a-z]+\d/.test(text)) return `${text}.`;
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

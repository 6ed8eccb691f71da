/** A record of comma-separated values (RFC 4180), without its line end. */
export function csvLine(fields: readonly string[]): string {
  return fields.map(quoted).join(',');
}

function quoted(field: string): string {
  return /[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field;
}

// The minimum time between `Last-Modified` and `Date`, in ms, that a clock error cannot explain. RFC 9110 8.8.2.2 does
// not define a value.
const clockDoubtMs = 60_000;

/**
 * Returns the validator that lets a later request prove that the representation is unchanged. It is a strong entity
 * tag, or a modification date that is strong because the response is clearly newer (RFC 9110 8.8.2.2, 13.1.5). If
 * undefined, a partial download must not be continued.
 */
export function strongValidator(headers: Record<string, string>): string | undefined {
  const etag = headers['etag'] ?? '';
  if (/^"[\x21\x23-\x7e\x80-\xff]+"$/.test(etag)) return etag;
  const lastModified = headers['last-modified'] ?? '';
  const age = Date.parse(headers['date'] ?? '') - Date.parse(lastModified);
  return age >= clockDoubtMs ? lastModified : undefined;
}

/**
 * Whether a response's headers may belong to the validator's representation. False if the headers identify a different
 * representation.
 */
export function isSameRepresentation(headers: Record<string, string>, validator: string): boolean {
  return validatorIn(headers, validator) === undefined || identifiesRepresentation(headers, validator);
}

/** Whether a response's headers identify the validator's representation. */
export function identifiesRepresentation(
  headers: Record<string, string>,
  validator: string | undefined,
): boolean {
  return validator !== undefined && validatorIn(headers, validator) === validator;
}

function validatorIn(headers: Record<string, string>, validator: string): string | undefined {
  return validator.startsWith('"') ? headers['etag'] : headers['last-modified'];
}

/** A `Content-Range`: the body's range (absent in a 416), and the total size if known. */
export interface ContentRange {
  start?: number;
  end?: number;
  total?: number;
}

/** Parses a `Content-Range` in bytes; undefined if it is missing, malformed or contradicts itself. */
export function readContentRange(value: string | undefined): ContentRange | undefined {
  const [, start, end, total] =
    /^bytes (?:(\d{1,15})-(\d{1,15})|\*)\/(\d{1,15}|\*)$/i.exec(value?.trim() ?? '') ?? [];
  if (total === undefined) return undefined;
  const range = { start: numberOf(start), end: numberOf(end), total: numberOf(total) };
  const { start: from = 0, end: to = from, total: of = Infinity } = range;
  return from <= to && (to < of || range.end === undefined) ? range : undefined;
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined || text === '*' ? undefined : Number(text);
}

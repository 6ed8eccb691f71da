// The longest text taken from a page, UTF-16 code units.
const longestPage = 64 * 1024;

/** True if a body is a web page or other markup: what proxies, and gateways with a wrong path, answer. */
export function isMarkup(text: string): boolean {
  return /^\s*<(!doctype|!--|\?xml|[a-z][\w:-]*[\s/>])/i.test(text.slice(0, 1024));
}

/** The text of a page on one line: its title, or all its visible text if it has none. '' if it shows nothing. */
export function markupText(page: string): string {
  const head = page.slice(0, longestPage);
  const title = /<title[^<>]*>([^<]*)/i.exec(head)?.[1] ?? '';
  return plain(title) || plain(shownText(head));
}

// The text between the tags; scripts are not shown.
function shownText(page: string): string {
  const [start = '', ...parts] = page.split('<');
  const texts = parts.map((part) =>
    /^(script|style)\b|^[^>]*$/i.test(part) ? '' : part.slice(part.indexOf('>') + 1),
  );
  return [start, ...texts].join(' ');
}

const entities: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', nbsp: ' ' };

function plain(text: string): string {
  return text
    .replace(/&(?:#(\d{1,7})|(amp|lt|gt|quot|nbsp));/gi, (entity, number?: string, name?: string) => {
      if (name !== undefined) return entities[name.toLowerCase()] ?? entity;
      const code = Number(number);
      return code <= 0x10ffff ? String.fromCodePoint(code) : entity;
    })
    .replace(/\s+/g, ' ')
    .trim();
}

/** An element's properties: attributes, listeners (`on…`), and `true` or `false` for boolean attributes. */
type Attributes = Record<string, string | number | boolean | undefined | ((event: Event) => void)>;

/**
 * Creates an element. Adds text as text nodes and sets attributes one by one, so that no prompt
 * or file name is ever parsed as HTML.
 */
export function make<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: (Node | string | undefined | false)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? '' : String(value));
  }
  element.append(...children.filter((child) => child !== undefined && child !== false));
  return element;
}

/** Creates a button. */
export function button(text: string, title: string, onclick: () => void): HTMLButtonElement {
  return make('button', { type: 'button', title, onclick }, text);
}

/** Creates an element for text whose writing direction is unknown. */
export function foreign(text: string, attributes: Attributes = {}): HTMLElement {
  return make('bdi', { dir: 'auto', ...attributes }, text);
}

/** Sets an attribute, or removes it if the value is false. */
export function mark(element: Element, name: string, value: string | false): void {
  if (value === false) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

/** Whether keys pressed in an element type text or choose an option. */
function isTypedInto(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return target.type !== 'checkbox' && target.type !== 'range';
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

/** The actions of keys, by key name. */
type Keys = Record<string, () => unknown>;

/** Listens to an element's keys, except while the user types text or holds a modifier key. */
export function onKeys(element: EventTarget, keysNow: () => Keys): void {
  element.addEventListener('keydown', (event) => {
    const key = event as KeyboardEvent;
    if (key.ctrlKey || key.metaKey || key.altKey || isTypedInto(key.target) || isItsOwn(key)) return;
    const act = keysNow()[key.key];
    if (act === undefined) return;
    key.preventDefault();
    key.stopPropagation();
    act();
  });
}

/** Returns the actions of the rating keys: keys 1 to 5 set the rating, and key 0 removes it. */
export function ratingKeys(rate: (rating: number | undefined) => unknown): Keys {
  const digits = [0, 1, 2, 3, 4, 5].map((digit) => [String(digit), () => rate(digit || undefined)] as const);
  return Object.fromEntries(digits);
}

// Whether the element itself handles the key: the space key presses a focused button,
// and arrow keys move a focused slider.
function isItsOwn({ key, target }: KeyboardEvent): boolean {
  if (key === ' ') return target instanceof HTMLButtonElement && !target.classList.contains('open');
  return target instanceof HTMLInputElement && target.type === 'range' && key.startsWith('Arrow');
}

/**
 * Creates five stars that show and set a rating. A click on the current rating removes it. If `isQuiet` is true,
 * the stars are not in the tab order.
 */
export function stars(set: (rating: number | undefined) => void, isQuiet = false): Stars {
  let shownRating: number | undefined;
  const buttons = [1, 2, 3, 4, 5].map((rating) =>
    make(
      'button',
      {
        type: 'button',
        class: 'star',
        'aria-label': `${rating} of 5`,
        tabindex: isQuiet ? -1 : undefined,
        onclick: (event) => {
          event.stopPropagation();
          set(shownRating === rating ? undefined : rating);
        },
      },
      '☆',
    ),
  );
  const element = make('span', { class: 'stars', role: 'group', 'aria-label': 'Rating' }, ...buttons);
  const show = (rating: number | undefined): void => {
    shownRating = rating;
    buttons.forEach((button, index) => {
      const isOn = rating !== undefined && index < rating;
      button.classList.toggle('on', isOn);
      button.textContent = isOn ? '★' : '☆';
      mark(button, 'aria-pressed', String(rating === index + 1));
    });
  };
  show(undefined);
  return { element, show };
}

export interface Stars {
  element: HTMLElement;
  show: (rating: number | undefined) => void;
}

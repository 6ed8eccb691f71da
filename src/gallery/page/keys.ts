import { isTypedInto } from './dom.ts';

/** What the keys do, by the key. */
export type Keys = Record<string, () => unknown>;

/** Listens to the keys of an element, but where something is typed or a modifier is held. */
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

/** The keys 1 to 5, which rate, and 0, which takes a rating back. */
export function ratingKeys(rate: (rating: number | undefined) => unknown): Keys {
  const digits = [0, 1, 2, 3, 4, 5].map((digit) => [String(digit), () => rate(digit || undefined)] as const);
  return Object.fromEntries(digits);
}

// A blank presses the button that has the focus; a slider has arrows of its own.
function isItsOwn({ key, target }: KeyboardEvent): boolean {
  if (key === ' ') return target instanceof HTMLButtonElement && !target.classList.contains('open');
  return target instanceof HTMLInputElement && target.type === 'range' && key.startsWith('Arrow');
}
